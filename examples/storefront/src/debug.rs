//! A page that tells, while the shop is open, who holds what and who waits for it: `GET /debug/bursar`, as a table;
//! `/debug/bursar.json` for machines.

use bursar::Runtime;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use crate::http::{Reply, Service};

/// Answers with snapshots of one runtime.
#[derive(Debug)]
pub struct Inspector {
    pub runtime: Runtime,
}

impl Inspector {
    /// What there is at a path: a snapshot is derived when it is asked for.
    fn page(&self, path: &str) -> (StatusCode, String) {
        match path {
            "/debug/bursar" => (StatusCode::OK, format!("{}\n", self.runtime.snapshot())),
            "/debug/bursar.json" => match serde_json::to_string_pretty(&self.runtime.snapshot()) {
                Ok(json) => (StatusCode::OK, json),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            _ => (StatusCode::NOT_FOUND, "it is /debug/bursar\n".to_owned()),
        }
    }
}

impl Service for Inspector {
    async fn handle(&self, request: Request<Incoming>) -> Reply {
        let (status, page) = self.page(request.uri().path());
        Reply::Answer(status, page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts;

    #[test]
    fn the_page_is_a_table_or_json() {
        let inspector = Inspector {
            runtime: contracts::runtime(true).expect("the budgets are right"),
        };
        let (status, page) = inspector.page("/debug/bursar");
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains("renderer"), "{page}");
        let (_, page) = inspector.page("/debug/bursar.json");
        let snapshot: bursar::Snapshot = serde_json::from_str(&page).expect("a snapshot");
        assert_eq!(snapshot, inspector.runtime.snapshot());
        assert_eq!(inspector.page("/").0, StatusCode::NOT_FOUND);
    }
}
