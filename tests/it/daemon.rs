//! The real `transitd` between a scripted Worker and scripted adapters.

mod deliveries;
mod enrolment;
mod sending;
mod sessions;
mod waiting;
mod worker_link;
mod world;
