//! The real `transitd` between a scripted Worker and scripted adapters.

mod crowd;
mod deliveries;
mod doctor;
mod enrolment;
mod harness;
mod herdr;
mod history;
mod loops;
mod manners;
mod namespaces;
mod orders;
mod sending;
mod sessions;
mod tools;
mod waiting;
mod worker_link;
mod world;
