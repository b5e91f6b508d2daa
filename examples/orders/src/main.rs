//! `cargo run -p orders [ADDRESS [DATABASE]]`: serves until Ctrl-C or SIGTERM, by default on port 3000 with a database among
//! the temporary files.

use std::error::Error;

use tokio::net::TcpListener;

/// At a terminal people press Ctrl-C; whoever deploys sends SIGTERM.
#[cfg(unix)]
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn told_to_end() -> std::io::Result<impl Future<Output = std::io::Result<()>>> {
    Ok(tokio::signal::ctrl_c())
}

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
    let signal = told_to_end()?;
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let report = orders::serve(listener, pool, signal).await?;
    println!("{report}");
    Ok(())
}
