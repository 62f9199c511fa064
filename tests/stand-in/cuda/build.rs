//! Gives the stand-in the name under which programs look for the driver, and compiles the part that knows the kernels'
//! tables.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let kernels = "../../../cuda";
    // A folder stands for all files below it. What the tables include may include any of them.
    println!("cargo:rerun-if-changed={kernels}");
    let tables = ["src/augment.c", "src/decode.c"];
    tables.iter().for_each(|table| println!("cargo:rerun-if-changed={table}"));
    cc::Build::new().files(tables).std("c11").include(kernels).warnings_into_errors(true).compile("table");
}
