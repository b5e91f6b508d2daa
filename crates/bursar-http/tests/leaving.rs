//! Every terminator dropped after each number of polls: what it held is back at once, no file is left, and whoever comes
//! next is served (G10, G11).

mod common;

use std::future::{Future, poll_fn};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bursar::{Policy, Runtime};
use bursar_http::{Client, Clients, Multipart};
use common::{Server, ok};

const LENGTH: usize = 300_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Fetch,
    Raw,
    Stream,
    Download,
    Submit,
}

/// One exchange of that mode from beginning to end.
async fn exchange(mode: Mode, client: &Client, clients: &Clients, file: &Path, place: &Path) {
    let form = Multipart::new().text("a", "1").file("b", file, "x/y");
    let post = client.post("/").multipart(form);
    match mode {
        Mode::Fetch => drop(post.fetch::<String>().await.unwrap()),
        Mode::Raw => assert_eq!(post.send_raw().await.unwrap().body().len(), LENGTH + 2),
        Mode::Stream => {
            let mut answer = post.stream().await.unwrap();
            while answer.body_mut().chunk().await.unwrap().is_some() {}
        }
        Mode::Download => {
            let answer = post.download(place).await.unwrap();
            assert_eq!(*answer.body() as usize, LENGTH + 2);
        }
        Mode::Submit => {
            let log = clients.get("log").unwrap();
            log.post("/").json(&1).submit().await.unwrap();
        }
    }
}

/// Whether `work` ends within so many polls; it is dropped then.
async fn within_polls(work: impl Future<Output = ()>, most: u32) -> bool {
    let mut work = Box::pin(work);
    let mut polls = 0;
    poll_fn(|cx| {
        if polls == most {
            return Poll::Ready(false);
        }
        polls += 1;
        work.as_mut().poll(cx).map(|()| true)
    })
    .await
}

#[tokio::test]
async fn g10_dropped_at_every_poll_nothing_is_held_and_the_next_is_served() {
    let long = format!("{:?}", "x".repeat(LENGTH));
    let long: Arc<str> = Arc::from(ok(&long));
    let open = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&open);
    let server = Server::start(move |mut peer, _| {
        let (long, open) = (Arc::clone(&long), Arc::clone(&opened));
        open.fetch_add(1, Ordering::SeqCst);
        async move {
            while peer.hear().await.is_some() {
                peer.say(&long).await;
            }
            open.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    let runtime = Runtime::builder().resource("uplink", 1).build().unwrap();
    let policy = Policy::effect_per_call().claim("uplink", 1);
    let contract = runtime.contract("log", policy).unwrap();
    let client = server.client().contract(contract).build().unwrap();
    let clients = Clients::builder()
        .register("log", client.clone())
        .build()
        .unwrap();
    let dir = std::env::temp_dir().join(format!("bursar-leaving-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (file, place) = (dir.join("file"), dir.join("place"));
    std::fs::write(&file, vec![b'x'; 100_000]).unwrap();
    let modes = [
        Mode::Fetch,
        Mode::Raw,
        Mode::Stream,
        Mode::Download,
        Mode::Submit,
    ];
    // On a connection that is to be opened, and on one that is idle.
    for (mode, warm) in modes
        .iter()
        .flat_map(|mode| [(*mode, false), (*mode, true)])
    {
        let mut most = 0;
        loop {
            if warm {
                client.get("/").send_raw().await.unwrap();
            }
            let work = exchange(mode, &client, &clients, &file, &place);
            let ended = within_polls(work, most).await;
            while mode == Mode::Submit && runtime.stats().budgets[0].in_use > 0 {
                // The host reads the answer of what was submitted.
                tokio::task::yield_now().await;
            }
            bursar::testkit::assert_idle(&runtime);
            if ended {
                break;
            }
            // Left while the file was being put into its place, it may be there: whole.
            let put = std::fs::metadata(&place);
            if let (Mode::Download, Ok(file)) = (mode, put) {
                assert_eq!(file.len() as usize, LENGTH + 2);
                std::fs::remove_file(&place).unwrap();
            }
            most += 1;
        }
        assert!(most > 1, "{mode:?} ended in its first poll");
    }
    // A thread may still be making the file of a download that was left, and removes it then.
    std::fs::remove_file(&place).unwrap();
    std::fs::remove_file(&file).unwrap();
    while std::fs::read_dir(&dir).unwrap().next().is_some() {
        tokio::task::yield_now().await;
    }
    std::fs::remove_dir(&dir).unwrap();
    clients.shutdown().await.unwrap();
    runtime.shutdown().await.unwrap();
    drop((client, clients));
    while open.load(Ordering::SeqCst) > 0 {
        // Every connection is closed in the end, and this ends.
        tokio::task::yield_now().await;
    }
}
