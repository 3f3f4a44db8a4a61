// orval writes the address into its client.
module.exports = {
  desk: {
    input: process.env.DOCUMENT,
    output: { target: "generated/orval.ts", client: "fetch", baseUrl: process.env.TENANTDESK_URL },
  },
};
