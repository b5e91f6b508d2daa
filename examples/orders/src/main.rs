//! `cargo run -p orders [ADDRESS [DATABASE]]`: serves until Ctrl-C, by default on port 3000 with a database among the
//! temporary files.

use std::error::Error;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let database = arguments.next().map_or_else(
        || std::env::temp_dir().join("orders.db"),
        std::path::PathBuf::from,
    );
    let pool = orders::open(&database).await?;
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let report = orders::serve(listener, pool, tokio::signal::ctrl_c()).await?;
    println!("{report}");
    Ok(())
}
