pub mod command;
pub mod entry;
pub mod state;
