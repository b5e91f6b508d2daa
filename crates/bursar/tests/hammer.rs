//! E1: the counters are consistent in every snapshot, read while calls come and go on several threads and a shutdown
//! comes in between.

#![allow(
    clippy::disallowed_methods,
    reason = "a hammer of tasks on several threads, and a reader on another"
)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use bursar::{Policy, Runtime, Stats};
use common::{Answer, assert_idle, counts};

fn assert_consistent(stats: &Stats) {
    for of in stats.operations.iter().chain([&stats.total()]) {
        assert!(
            of.started <= of.admitted && of.finished <= of.admitted,
            "{stats}"
        );
    }
}

/// Ends the reader, on a panic too.
struct Enough<'d>(&'d AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn e1_every_snapshot_read_meanwhile_is_consistent() {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let builder = Runtime::builder().resource("a", 2);
    let runtime = builder.build().unwrap();
    let policy = Policy::pure().claim("a", 1);
    let waits = runtime.contract("waits", policy).unwrap();
    let rejects = runtime
        .contract("rejects", Policy::pure().claim("a", 1).reject())
        .unwrap();
    let done = AtomicBool::new(false);
    let snapshots = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut read, mut last) = (0_u32, runtime.stats().total());
            while !done.load(Ordering::Acquire) {
                let stats = runtime.stats();
                assert_consistent(&stats);
                let total = stats.total();
                assert!(total.finished >= last.finished && total.admitted >= last.admitted);
                (read, last) = (read + 1, total);
            }
            read
        });
        let enough = Enough(&done);
        executor.block_on(async {
            let callers: Vec<_> = (0..8)
                .map(|caller| {
                    let contract = if caller % 2 == 0 {
                        waits.clone()
                    } else {
                        rejects.clone()
                    };
                    tokio::spawn(async move {
                        let mut calls = 0;
                        loop {
                            let answer = contract.run(|| async {
                                tokio::task::yield_now().await;
                                Answer::Ok(1)
                            });
                            match answer.await {
                                Err(error) if error.is_stopping() => break calls,
                                _ => calls += 1,
                            }
                        }
                    })
                })
                .collect();
            while counts(&runtime, "waits").finished < 2_000 {
                tokio::task::yield_now().await;
            }
            runtime.shutdown().await.expect("from outside");
            assert_idle(&runtime);
            for caller in callers {
                assert!(caller.await.unwrap() > 0);
            }
        });
        drop(enough);
        reader.join().expect("every snapshot is consistent")
    });
    assert!(snapshots > 100, "{snapshots}");
    assert_idle(&runtime);
}
