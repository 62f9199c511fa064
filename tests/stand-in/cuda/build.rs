//! Gives the stand-in the file name of the driver's library, and compiles the C code that reads the kernels' tables.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let kernels = "../../../cuda";
    // A folder stands for all files below it. The tables' headers may include any of them.
    println!("cargo:rerun-if-changed={kernels}");
    let tables = ["src/augment.c", "src/decode.c"];
    tables.iter().for_each(|table| println!("cargo:rerun-if-changed={table}"));
    cc::Build::new().files(tables).std("c11").include(kernels).warnings_into_errors(true).compile("table");
}
