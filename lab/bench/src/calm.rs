//! Whether a batch had the processors to itself.
//!
//! On a shared machine a batch is often interrupted, and two tasks on two workers are often not running at the same
//! time. Linux counts for each thread how long it stood ready without a processor; a batch during which this grew by
//! more than a trifle says more about the machine than about the code, and is left out.
//!
//! Where the kernel keeps no such count every batch passes as calm, and the medians have to do.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// What share of a batch its threads may have stood waiting for a processor, for the batch to count.
pub const MOST: f64 = 0.02;

/// Reads how long threads have waited.
#[derive(Debug)]
pub enum Waits {
    /// This thread.
    Thread(Option<File>),
    /// All other threads of this process: the workers that the caller sleeps for.
    Others,
}

impl Waits {
    /// For work that stays on this thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self::Thread(File::open("/proc/thread-self/schedstat").ok())
    }

    /// How long, since they were created.
    #[must_use]
    pub fn so_far(&self) -> Duration {
        match self {
            Self::Thread(file) => file.as_ref().and_then(read).unwrap_or_default(),
            Self::Others => {
                let this = std::fs::read_link("/proc/thread-self").unwrap_or_default();
                let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
                threads
                    .flatten()
                    .filter(|thread| Some(thread.file_name().as_os_str()) != this.file_name())
                    .filter_map(|thread| File::open(thread.path().join("schedstat")).ok())
                    .filter_map(|file| read(&file))
                    .sum()
            }
        }
    }
}

/// The second of three numbers: nanoseconds spent ready and waiting.
fn read(file: &File) -> Option<Duration> {
    let mut text = [0; 96];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    let waited = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

/// Measures something on this thread, again if it was disturbed, a few times; the least disturbed figure.
pub fn calmly(mut measure: impl FnMut() -> f64) -> f64 {
    const TRIES: u32 = 4;
    let waits = Waits::of_this_thread();
    let mut best = (Duration::MAX, f64::NAN);
    for _ in 0..TRIES {
        let (began, before) = (Instant::now(), waits.so_far());
        let figure = measure();
        let waited = waits.so_far().saturating_sub(before);
        if waited < best.0 {
            best = (waited, figure);
        }
        if waited.as_secs_f64() <= MOST * began.elapsed().as_secs_f64() {
            break;
        }
    }
    best.1
}

/// The machine's load, where it says: how many threads ran or waited to, over the last minute.
#[must_use]
pub fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether this process goes before all ordinary ones: its scheduling policy is a real-time one.
#[must_use]
pub fn goes_first() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may hold anything; the policy is the 39th field after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let policy = fields.split_ascii_whitespace().nth(38);
    matches!(policy, Some("1" | "2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_threads_waits_never_shrink() {
        let waits = Waits::of_this_thread();
        let before = waits.so_far();
        std::thread::yield_now();
        assert!(waits.so_far() >= before);
    }

    #[test]
    fn an_undisturbed_figure_is_taken_at_once() {
        let mut tries = 0;
        let figure = calmly(|| {
            tries += 1;
            f64::from(tries)
        });
        assert!((1.0..=4.0).contains(&figure), "{figure}");
    }
}
