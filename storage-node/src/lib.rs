pub mod shard;
