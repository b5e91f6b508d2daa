//! What the real servers answer, and what is there afterwards. `lab/providers/run` starts them and runs this.

mod postgres;
mod postgres_commit;
mod postgres_down;
mod redis;
mod redis_cluster;
mod servers;
