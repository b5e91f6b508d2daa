//! The terminators, of clients and of one-shot requests.

use bursar::testkit::Subject;
use bursar_http::{Json, Multipart};
use bytes::Bytes;
use http::HeaderMap;

use crate::harness::{
    ANSWER, REDIRECTED, RETRIED, SUBMITTED, UPLOAD, World, drop_cold_and_warm, drop_everywhere,
};

/// A decoder of one's own.
fn quoted(_: &HeaderMap, body: &Bytes) -> Result<usize, Box<dyn std::error::Error + Send + Sync>> {
    Ok(body.len() - 2)
}

#[test]
fn g10_send_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let sent = world.client().get("/fails").send::<String>().await;
                assert_eq!(sent.expect("it is answered").body(), ANSWER);
            })
        },
        &RETRIED,
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let sent = world.client().get("/fails").send_as(quoted).await;
                assert_eq!(*sent.expect("it is answered").body(), ANSWER.len());
            })
        },
        &RETRIED,
    );
}

#[test]
fn g10_fetch_dropped_at_every_poll_leaves_nothing_behind() {
    drop_everywhere(
        |world| {
            Box::pin(async {
                let put = world.client().put("/fails").json(&1);
                let fetched = put.fetch::<String>().await;
                assert_eq!(fetched.expect("it is answered"), ANSWER);
            })
        },
        &RETRIED,
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let fetched = world.client().get("/fails").fetch_as(quoted).await;
                assert_eq!(fetched.expect("it is answered"), ANSWER.len());
            })
        },
        &RETRIED,
    );
}

#[test]
fn g10_a_response_as_it_is_dropped_at_every_poll_leaves_nothing_behind() {
    drop_cold_and_warm(
        |world| {
            Box::pin(async {
                let raw = world.client().get("/moved").send_raw().await;
                assert_eq!(raw.expect("it is answered").body().len(), ANSWER.len() + 2);
            })
        },
        &REDIRECTED,
        |_| {},
    );
    drop_cold_and_warm(
        |world| {
            Box::pin(async {
                let answer = world.client().get("/moved").stream().await;
                let mut body = answer.expect("it is answered").into_body();
                let mut length = 0;
                while let Some(chunk) = body.chunk().await.expect("it comes") {
                    length += chunk.len();
                }
                assert_eq!(length, ANSWER.len() + 2);
            })
        },
        &REDIRECTED,
        |_| {},
    );
}

/// With files on both sides, which other threads read and write.
#[test]
fn g10_a_download_dropped_at_every_poll_leaves_no_part_of_its_file() {
    let dir = std::env::temp_dir().join(format!("bursar-drops-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("there is room");
    let upload = std::env::temp_dir().join(format!("bursar-drops-{}.up", std::process::id()));
    std::fs::write(&upload, vec![b'x'; 100_000]).expect("there is room");
    let place = dir.join("place");
    drop_cold_and_warm(
        |world| -> Subject<'_> {
            let (upload, place) = (upload.clone(), place.clone());
            Box::pin(async move {
                let form = Multipart::new().text("a", "1").file("b", upload, "x/y");
                let post = world.client().post("/moved").multipart(form);
                let answer = post.download(place).await.expect("it is answered");
                assert_eq!(*answer.body() as usize, ANSWER.len() + 2);
            })
        },
        &REDIRECTED,
        |world| {
            // Left while the file was being put into its place, it may be there: whole.
            if let Ok(file) = std::fs::metadata(&place) {
                assert_eq!(file.len() as usize, ANSWER.len() + 2);
                std::fs::remove_file(&place).expect("it is there");
            }
            // A thread may still be making the file of one that was left, and removes it then.
            world.within_patience(async {
                while std::fs::read_dir(&dir).expect("it stays").next().is_some() {
                    tokio::task::yield_now().await;
                }
            });
        },
    );
    std::fs::remove_dir(&dir).expect("it is empty");
    std::fs::remove_file(&upload).expect("it is there");
}

#[test]
fn g10_a_one_shot_dropped_at_every_poll_closes_its_client() {
    fn one_shot(world: &World) -> bursar_http::ClientBuilder {
        let builder = world
            .server
            .client()
            .redirects(3)
            .clock(world.clock.clone());
        builder.contract(world.contract.clone())
    }
    drop_everywhere(
        |world| {
            Box::pin(async {
                let request = one_shot(world).get("/fails");
                let fetched = request.fetch::<String>().await;
                assert_eq!(fetched.expect("it is answered"), ANSWER);
            })
        },
        &RETRIED,
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let request = one_shot(world).put("/fails").json(&1);
                let sent = request.send_as::<String, _>(Json).await;
                assert_eq!(sent.expect("it is answered").body(), ANSWER);
            })
        },
        &RETRIED,
    );
    drop_everywhere(
        |world| {
            Box::pin(async {
                let raw = one_shot(world).post("/moved").send_raw().await;
                assert_eq!(raw.expect("it is answered").body().len(), ANSWER.len() + 2);
            })
        },
        &REDIRECTED,
    );
}

#[test]
fn g10_a_submission_dropped_at_every_poll_is_cut_and_an_ended_one_is_answered() {
    drop_cold_and_warm(
        |world| {
            Box::pin(async {
                let body = Bytes::from(vec![b'x'; UPLOAD]);
                let post = world.registered().post("/slowly").raw("x/y", body);
                post.submit().await.expect("it has left");
            })
        },
        &SUBMITTED,
        |_| {},
    );
}
