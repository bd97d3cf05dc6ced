//! The store dies while an object is sent to it.

use std::time::Duration;

use weir_tier::store::{PART_BYTES, Store, StoreConfig, StoreError};

use crate::minio::Minio;
use crate::suite::noise;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minio_killed_while_an_object_is_sent_leaves_no_part_of_it() {
    let mut minio = Minio::start();
    let patient = StoreConfig { options: minio.options(), ..StoreConfig::new(Minio::url("killed")) };
    let store = Store::open(StoreConfig { patience: Duration::from_secs(2), ..patient.clone() }).unwrap();
    // What has to succeed may take as long as it does.
    let patient = Store::open(patient).unwrap();
    for (round, parts) in [1, 2, 4].into_iter().enumerate() {
        let name = format!("u/{round}");
        let mut upload = store.upload(&name);
        let first = upload.write(noise(parts * PART_BYTES)).await;
        minio.kill();
        let failed = match first {
            Ok(()) => upload.finish().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(failed.is_passing() && failed.object() == name, "{failed}");
        minio.begin();
        assert!(matches!(patient.get(&name, 0..1).await, Err(StoreError::Missing { .. })), "round {round}");
        let mut again = patient.upload(&name);
        again.write(noise(parts * PART_BYTES)).await.unwrap();
        again.finish().await.unwrap();
        let whole = patient.get_all(&name, 64 << 20).await.unwrap();
        assert!(whole == noise(parts * PART_BYTES), "round {round}");
    }
}
