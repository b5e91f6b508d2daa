//! E3: what is told to `tracing` and to the `metrics` facade, held to `docs/telemetry.md` by name.

#![cfg(all(feature = "tracing", feature = "metrics", feature = "exact"))]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use bursar::{Backoff, Contract, Failure, ManualClock, Policy, Retry, Runtime};
use common::{Answer, Error, Script, Stepped, lock, ms, receive};
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio_test::task::spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// The rows of the table whose first column's head is `name` and whose second is `kind`, under that heading: each row's
/// cells without their backticks.
fn documented(heading: &str) -> Vec<Vec<String>> {
    let page = include_str!("../../../docs/telemetry.md");
    let section = page.split("\n## ").find(|text| text.starts_with(heading));
    let rows = section.expect("the heading is there").lines();
    rows.filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().replace('`', "")).collect()
        })
        .collect()
}

/// What one span or event said: name, kind, level, and its fields with their values.
#[derive(Clone, Debug)]
struct Said {
    name: String,
    kind: &'static str,
    level: String,
    fields: BTreeMap<&'static str, String>,
    /// The names of all its fields, told or not.
    all: BTreeSet<&'static str>,
    /// The span it was said in.
    inside: Option<&'static str>,
}

impl Said {
    fn new(of: &'static Metadata<'static>, kind: &'static str) -> Self {
        Self {
            name: of.name().to_owned(),
            kind,
            level: of.level().to_string().to_lowercase(),
            fields: BTreeMap::new(),
            all: of.fields().iter().map(|field| field.name()).collect(),
            inside: None,
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        let value = value.trim_matches('"').to_owned();
        if field.name() == "message" {
            self.name = value;
        } else {
            self.fields.insert(field.name(), value);
        }
    }
}

#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<Said>>>);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut said = Said::new(attributes.metadata(), "span");
        attributes.record(&mut said);
        let span = context.span(id).expect("it is new");
        span.extensions_mut().insert(said);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("it is open");
        let mut extensions = span.extensions_mut();
        record.record(extensions.get_mut::<Said>().expect("each span has one"));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it closes now");
        let said = span.extensions_mut().remove::<Said>();
        lock(&self.0).extend(said);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut said = Said::new(event.metadata(), "event");
        event.record(&mut said);
        said.all.remove("message");
        said.inside = context.event_span(event).map(|span| span.name());
        lock(&self.0).push(said);
    }
}

impl Capture {
    /// What was said under this name.
    fn of(&self, name: &str) -> Vec<Said> {
        let said = lock(&self.0);
        said.iter().filter(|of| of.name == name).cloned().collect()
    }
}

#[track_caller]
fn field<'s>(said: &'s Said, name: &str) -> Option<&'s str> {
    assert!(said.all.contains(name), "{name} is a field of {said:?}");
    said.fields.get(name).map(String::as_str)
}

fn exact() -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    let builder = Runtime::builder().clock(clock.clone()).exact();
    (builder.resource("db", 1).build().unwrap(), clock)
}

/// Does everything that is told about, once at least.
fn everything(runtime: &Runtime, clock: &ManualClock) -> Contract {
    let backoff = Backoff::exponential(ms(8)).cap(ms(8));
    let retry = Retry::up_to(2).on_transient().backoff(backoff);
    let load = Policy::pure().claim("db", 1).timeout(ms(50)).retry(retry);
    let load = runtime.contract("load", load).unwrap();
    let refused = Policy::pure().claim("db", 1).reject();
    let refused = runtime.contract("refused", refused).unwrap();

    // One that waits for its key and then for its unit, fails, pauses and succeeds; meanwhile another is refused.
    let mut key = load.with().key("k");
    let held = assert_ready_ok!(spawn(key.admit()).poll());
    let script = Script::new();
    let mut call = load.with().key("k");
    let mut run = spawn(call.run(|_| async {
        tracing::info!(target: "shop", "inside");
        script.answer().await
    }));
    assert_pending!(run.poll());
    let mut second = spawn(load.admit());
    assert_pending!(second.poll());
    drop(held);
    let second = assert_ready_ok!(second.poll());
    assert_pending!(run.poll());
    let mut turned_away = spawn(refused.run(|| async { Answer::Ok(7) }));
    assert_pending!(turned_away.poll());
    assert_ready_err!(turned_away.poll());
    drop(second);
    script.say(Err(Failure::transient("again")));
    assert_pending!(run.poll());
    clock.advance(ms(8));
    script.say(Ok(7));
    assert_ready_ok!(run.poll());

    // One that fails for good, one that runs out of time.
    let fails = || async { Err::<(), _>(Failure::<Error>::permanent("bad")) };
    assert_ready_err!(spawn(load.run(fails)).poll());
    let script = Script::new();
    let mut late = spawn(load.run(|| script.answer()));
    assert_pending!(late.poll());
    clock.advance(ms(50));
    assert_ready_err!(late.poll());
    runtime.resize("db", 2).unwrap();
    load.clone()
}

#[test]
fn e3_spans_and_events_are_those_of_the_table() {
    let capture = Capture::default();
    let subscriber = Registry::default().with(capture.clone());
    tracing::subscriber::with_default(subscriber, || {
        let (runtime, clock) = exact();
        everything(&runtime, &clock);
        assert_ready_ok!(spawn(runtime.shutdown()).poll());
    });

    let rows = documented("Spans and events");
    let names: BTreeSet<&str> = rows.iter().map(|row| &*row[0]).collect();
    let said: BTreeSet<String> = lock(&capture.0)
        .iter()
        .filter(|of| of.name != "inside")
        .map(|of| of.name.clone())
        .collect();
    assert_eq!(
        said.iter().map(|name| &**name).collect::<BTreeSet<_>>(),
        names
    );
    for row in &rows {
        let [name, kind, level, fields] = &row[..] else {
            panic!("four columns: {row:?}");
        };
        let of = &capture.of(name)[0];
        assert_eq!((of.kind, &of.level), (&**kind, level), "{name}");
        let fields = fields.split(", ").filter(|field| !field.is_empty());
        assert_eq!(of.all, fields.collect(), "{name}");
    }
}

#[test]
fn e3_events_say_what_happened() {
    let capture = Capture::default();
    let subscriber = Registry::default().with(capture.clone());
    tracing::subscriber::with_default(subscriber, || {
        let (runtime, clock) = exact();
        everything(&runtime, &clock);
    });

    let waiting = capture.of("waiting");
    let at: Vec<_> = waiting.iter().map(|of| field(of, "budget")).collect();
    assert_eq!(at, [None, Some("db"), Some("db")]);
    assert!(waiting.iter().all(|of| of.inside == Some("bursar.call")));
    let refused = &capture.of("refused")[0];
    assert_eq!(field(refused, "reason"), Some("overloaded"));
    assert_eq!(field(refused, "in_use"), Some("1"));
    let attempts = capture.of("attempt failed");
    assert_eq!(field(&attempts[0], "next"), Some("after a pause"));
    assert_eq!(field(&attempts[1], "next"), Some("nothing"));
    assert_eq!(field(&attempts[1], "pause"), None);
    let failed = capture.of("failed");
    let why: Vec<_> = failed
        .iter()
        .map(|of| (field(of, "reason"), field(of, "outcome")))
        .collect();
    assert_eq!(
        why,
        [
            (Some("failed"), Some("permanent")),
            (Some("timed out"), Some("uncertain"))
        ]
    );
    let calls = capture.of("bursar.call");
    let mut outcomes: Vec<_> = calls
        .iter()
        .map(|of| (field(of, "outcome"), field(of, "attempts")))
        .collect();
    outcomes.sort_unstable();
    assert_eq!(
        outcomes,
        [
            (Some("permanent"), Some("1")),
            (Some("success"), None),
            (Some("success"), None),
            (Some("success"), None),
            (Some("throttled"), Some("0")),
            (Some("uncertain"), Some("1")),
        ]
    );
    // What the handler says is inside its call.
    assert_eq!(capture.of("inside")[0].inside, Some("bursar.call"));
}

#[test]
fn e3_a_blocking_handler_is_inside_its_call() {
    let pool = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    let entered = pool.enter();
    let capture = Capture::default();
    let subscriber = Registry::default().with(capture.clone());
    let (tells, inside) = std::sync::mpsc::channel();
    tracing::subscriber::with_default(subscriber, || {
        let (runtime, _) = exact();
        let load = Policy::pure().claim("db", 1);
        let load = runtime.contract("load", load).unwrap();
        // The subscriber is this thread's alone: the handler takes it along to ask it.
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let mut call = Stepped::new(load.run_blocking(move |_| {
            let span = tracing::dispatcher::with_default(&dispatch, tracing::Span::current);
            tells
                .send(span.metadata().map(Metadata::name))
                .expect("the test listens");
            Answer::Ok(7)
        }));
        assert_pending!(call.poll());
        call.wait();
        assert_ready_ok!(call.poll());
    });
    // The span is told once the only thread has let go of it, too: what it does next it does after that.
    pool.block_on(pool.spawn_blocking(|| ())).unwrap();
    assert_eq!(receive(&inside), Some("bursar.call"));
    // The thread has the span for a moment longer than the caller waits; its pool goes when its threads have ended.
    drop(entered);
    drop(pool);
    let outcome = field(&capture.of("bursar.call")[0], "outcome").map(str::to_owned);
    assert_eq!(outcome.as_deref(), Some("success"));
}

#[test]
fn e3_a_subscriber_may_look_at_the_runtime() {
    #[derive(Clone)]
    struct Looks(Arc<Mutex<Option<Runtime>>>, Arc<Mutex<u32>>);

    impl<S: Subscriber> Layer<S> for Looks {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            let runtime = lock(&self.0).clone();
            if let Some(runtime) = runtime {
                assert!(runtime.snapshot().budgets[0].in_use <= 2);
                *lock(&self.1) += 1;
            }
        }
    }

    let (runtime, clock) = exact();
    let looks = Looks(Arc::new(Mutex::new(Some(runtime.clone()))), Arc::default());
    let subscriber = Registry::default().with(looks.clone());
    tracing::subscriber::with_default(subscriber, || {
        everything(&runtime, &clock);
        assert_ready_ok!(spawn(runtime.shutdown()).poll());
    });
    assert!(*lock(&looks.1) > 8);
}

/// Name, kind, labels; and the values.
type Told = BTreeMap<(String, String, BTreeSet<String>), Vec<(Vec<String>, f64)>>;

fn told(from: &Snapshotter) -> Told {
    let mut told = Told::new();
    for (key, _, _, value) in from.snapshot().into_vec() {
        let kind = match key.kind() {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let value = match value {
            DebugValue::Counter(value) => value as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        let labels = || key.key().labels();
        let row = (
            key.key().name().to_owned(),
            kind.to_owned(),
            labels().map(|label| label.key().to_owned()).collect(),
        );
        let of = labels().map(|label| label.value().to_owned()).collect();
        told.entry(row).or_default().push((of, value));
    }
    told
}

#[test]
fn e3_metrics_are_those_of_the_table() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let (runtime, clock) = exact();
        let load = everything(&runtime, &clock);
        let permit = assert_ready_ok!(spawn(load.admit()).poll());
        runtime.publish_metrics();
        // Told twice, counted once.
        runtime.publish_metrics();
        drop(permit);
    });
    let told = told(&snapshotter);
    let rows: BTreeSet<_> = documented("Metrics")
        .into_iter()
        .map(|row| {
            let labels = row[2].split(", ").filter(|label| !label.is_empty());
            let labels: BTreeSet<String> = labels.map(str::to_owned).collect();
            (row[0].clone(), row[1].clone(), labels)
        })
        .collect();
    assert_eq!(told.keys().cloned().collect::<BTreeSet<_>>(), rows);

    let value = |name: &str, labels: &[&str]| {
        let (_, values) = told.iter().find(|((of, _, _), _)| of == name).unwrap();
        let found = values.iter().find(|(of, _)| of == labels);
        found.map(|(_, value)| *value)
    };
    assert_eq!(value("bursar_calls_admitted_total", &["load"]), Some(6.0));
    assert_eq!(value("bursar_calls_total", &["load", "success"]), Some(3.0));
    assert_eq!(
        value("bursar_calls_total", &["load", "uncertain"]),
        Some(1.0)
    );
    assert_eq!(
        value("bursar_calls_total", &["refused", "never_ran"]),
        Some(1.0)
    );
    assert_eq!(value("bursar_calls_executing", &["load"]), Some(1.0));
    assert_eq!(value("bursar_budget_in_use", &["db"]), Some(1.0));
    assert_eq!(value("bursar_budget_capacity", &["db"]), Some(2.0));
    assert_eq!(value("bursar_call_wait_seconds", &["load"]), Some(6.0));
    assert_eq!(value("bursar_call_wait_seconds", &["refused"]), None);
}

/// A dashboard groups refusals by `reason`: each way to be turned away has a word of its own.
#[test]
fn e3_each_way_to_be_turned_away_has_its_word() {
    let capture = Capture::default();
    let subscriber = Registry::default().with(capture.clone());
    tracing::subscriber::with_default(subscriber, || {
        let (runtime, clock) = exact();
        let policy = || Policy::pure().claim("db", 1);
        let load = runtime.contract("load", policy()).unwrap();
        let keyed = runtime.contract("keyed", policy().require_key()).unwrap();
        let run = || async { Answer::Ok(7) };
        assert_ready_err!(spawn(keyed.run(run)).poll());
        let nested = || async {
            load.run(run).await.unwrap_err();
            Answer::Ok(7)
        };
        assert_ready_ok!(spawn(load.run(nested)).poll());

        let held = assert_ready_ok!(spawn(load.admit()).poll());
        let mut late = load.with().within(ms(5));
        let mut late = spawn(late.run(|_| run()));
        assert_pending!(late.poll());
        clock.advance(ms(5));
        assert_ready_err!(late.poll());
        let mut left = load.with().until(async {});
        assert_ready_err!(spawn(left.run(|_| run())).poll());
        drop(held);

        let gate = common::Gate::new();
        let mut cut = load.with().until(gate.wait());
        let mut cut = spawn(cut.run(|_| std::future::pending::<Answer>()));
        assert_pending!(cut.poll());
        gate.open();
        assert_ready_err!(cut.poll());
        assert_ready_ok!(spawn(runtime.shutdown()).poll());
        assert_ready_err!(spawn(load.run(run)).poll());
    });
    let reasons = |name| -> Vec<String> {
        let said = capture.of(name);
        let reasons = said.iter().filter_map(|of| field(of, "reason"));
        reasons.map(str::to_owned).collect()
    };
    assert_eq!(
        reasons("refused"),
        [
            "key required",
            "would deadlock",
            "admission timed out",
            "withdrawn",
            "stopping"
        ]
    );
    assert_eq!(reasons("failed"), ["cancelled"]);
}
