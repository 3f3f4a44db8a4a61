// PocketBase has no setting for this. It writes on one connection, which keeps the pragma until it has been idle for minutes.
onBootstrap((event) => {
  event.next();
  $app.nonconcurrentDB().newQuery("PRAGMA synchronous = FULL").execute();
});
