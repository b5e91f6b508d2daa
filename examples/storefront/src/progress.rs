//! Progress bars, where somebody sits in front of a terminal; silence elsewhere.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::plan::Plan;

#[derive(Debug)]
pub struct Progress {
    pub events: ProgressBar,
    pub cards: ProgressBar,
    pub feeds: ProgressBar,
    pub webhooks: ProgressBar,
    pub reviews: ProgressBar,
    bars: MultiProgress,
}

impl Progress {
    pub fn new(plan: &Plan) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bars = MultiProgress::with_draw_target(if terminal {
            ProgressDrawTarget::stderr_with_hz(12)
        } else {
            ProgressDrawTarget::hidden()
        });
        let colour = if std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) {
            ""
        } else {
            ".cyan/dim"
        };
        // The template is part of the program; should it not parse, the default one serves.
        let style = ProgressStyle::with_template(&format!(
            "  {{prefix:10}} {{bar:36{colour}}} {{pos:>6}} of {{len:<6}} {{rate}}"
        ))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key(
            "rate",
            |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // A bar that cannot be drawn is drawn a twelfth of a second later.
                let _ = write!(out, "{:>6.0} a second", state.per_sec());
            },
        )
        .progress_chars("━╸─");
        let bar = |name: &'static str, len: usize| {
            bars.add(
                ProgressBar::new(len as u64)
                    .with_style(style.clone())
                    .with_prefix(name),
            )
        };
        Self {
            events: bar("events", plan.events),
            cards: bar("cards", plan.cards),
            feeds: bar("catalogue", plan.feeds.len()),
            webhooks: bar("webhooks", plan.webhooks),
            reviews: bar("reviews", plan.reviews),
            bars,
        }
    }

    /// Whether nobody would see a bar.
    pub fn is_silent(&self) -> bool {
        self.bars.is_hidden()
    }

    /// Takes the bars away for good, so that what follows stands alone.
    pub fn clear(&self) {
        // A terminal that has gone cannot be cleared, and need not be.
        let _ = self.bars.clear();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
    }
}
