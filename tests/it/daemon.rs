//! The real `transitd` between a scripted Worker and scripted adapters.

mod crowd;
mod deliveries;
mod enrolment;
mod harness;
mod herdr;
mod history;
mod loops;
mod namespaces;
mod sending;
mod sessions;
mod tools;
mod waiting;
mod worker_link;
mod world;
