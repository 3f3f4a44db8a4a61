// The collection, open to all, and every field plain text: no rule and no check costs it anything. No request log.
migrate((app) => {
  const optional = ["customer_number", "email", "phone", "street", "postal_code", "city", "country", "status",
    "customer_since", "notes"];
  app.save(new Collection({
    type: "base", name: "customers", listRule: "", viewRule: "", createRule: "",
    fields: [
      { type: "text", name: "name", required: true },
      ...optional.map((name) => ({ type: "text", name })),
      { type: "autodate", name: "created_at", onCreate: true },
      { type: "autodate", name: "updated_at", onCreate: true, onUpdate: true },
    ],
  }));
  const settings = app.settings();
  settings.logs.maxDays = 0;
  app.save(settings);
});
