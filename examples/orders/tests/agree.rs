//! What `bursar-tower` makes of a status and what `bursar-classify` says it means is the same. Neither crate knows the other; a
//! service uses both.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use bursar::{Effect, Outcome};

#[test]
fn a_status_means_the_same_to_a_layer_and_to_a_classifier() {
    for effect in [Effect::Pure, Effect::Idempotent, Effect::NonIdempotent] {
        for wait in [None, Some("7"), Some("soon")] {
            let mut headers = HeaderMap::new();
            if let Some(wait) = wait {
                headers.insert(header::RETRY_AFTER, wait.parse().unwrap());
            }
            let pause = (wait == Some("7")).then_some(Duration::from_secs(7));
            for status in 100..=599 {
                let code = StatusCode::from_u16(status).unwrap();
                let judged = bursar_tower::judge_status(effect, code, &headers);
                let said = bursar_classify::http::status(status, pause.is_some(), effect);
                // A refusal such as 404 is an answer to whoever asked through a layer; nobody would repeat it.
                let answer = said.is_none() || (status < 500 && said == Some(Outcome::Permanent));
                assert_eq!(
                    judged.as_ref().map(bursar::Failure::outcome),
                    said.filter(|_| !answer),
                    "{status} {effect} {wait:?}"
                );
                assert!(judged.is_none_or(|failure| failure.pushback() == pause));
            }
        }
    }
}
