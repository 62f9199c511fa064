//! Gives the stand-in the name under which programs look for the driver, and compiles the part that knows the kernels'
//! table.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let kernels = "../../../cuda";
    for name in ["params", "platform"] {
        println!("cargo:rerun-if-changed={kernels}/{name}.cuh");
    }
    println!("cargo:rerun-if-changed=src/augment.c");
    cc::Build::new()
        .file("src/augment.c")
        .std("c11")
        .include(kernels)
        .warnings_into_errors(true)
        .compile("table");
}
