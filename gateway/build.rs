//! Rebuilds the gateway when the console was rebuilt: its files are embedded.

fn main() {
    println!("cargo::rerun-if-changed=../console/dist");
}
