//! TrailBase's server, as its own binary starts it: the same allocator, no JavaScript runtime.

use trailbase::{DataDir, Server, ServerOptions};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let server = Server::init(ServerOptions {
        data_dir: DataDir(std::env::var("PEER_FILE")?.into()),
        address: format!("127.0.0.1:{}", std::env::var("PEER_PORT")?),
        ..ServerOptions::default()
    })
    .await?;
    if std::env::var_os("PEER_DURABLE").is_some() {
        // All writes run on the connection that takes this.
        server.state.conn().execute("PRAGMA synchronous = FULL", ()).await?;
    }
    server.serve().await
}
