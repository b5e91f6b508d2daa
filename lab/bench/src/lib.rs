//! What a call under contract costs, beside its peers, in one process and one run.
//!
//! The machine this runs on is noisy and shared, so seconds alone prove little. Every row therefore measures its
//! contenders in rotation, many short batches of each, and judges the ratio within one rotation: what disturbs one
//! contender disturbs its neighbours as well.
//!
//! | module | owns |
//! |---|---|
//! | [`measure`] | the rotation of batches, and the ratio |
//! | [`calm`] | whether a batch had the processors to itself |
//! | [`figures`] | medians and quantiles |
//! | [`peers`] | what Bursar is measured against, written as a competent user writes it |
//! | [`rows`] | what is measured: one row a case, each with its target |
//! | [`heap`] | what is allocated, counted by a program of its own |
//! | [`instructions`] | instructions a call, held against a committed baseline |
//! | [`command`] | other programs that this one starts |
//! | [`machine`] | what the figures were seen on |
//! | [`growth`] | how the cost of an item grows with the number of items |
//! | [`report`] | what a measured row says, as a table and as JSON |
//! | [`svg`], [`docs`] | plots, and the page of figures |

pub mod calm;
pub mod command;
pub mod docs;
pub mod figures;
pub mod growth;
pub mod heap;
pub mod instructions;
pub mod machine;
pub mod measure;
pub mod peers;
pub mod report;
pub mod rows;
pub mod svg;
pub mod work;
