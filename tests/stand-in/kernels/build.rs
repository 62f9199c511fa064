//! Compiles the kernels for the CPU, with the arithmetic of the GPU: no multiplication is fused with an addition.

fn main() {
    let cuda = "../../../cuda";
    // A folder stands for all files in it, but not in its own folders.
    println!("cargo:rerun-if-changed={cuda}/ops");
    for entry in std::fs::read_dir(cuda).expect("the folder of the kernels") {
        let path = entry.expect("a file of the kernels").path();
        if path.extension().is_some_and(|kind| kind == "cuh" || kind == "c") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    cc::Build::new()
        .file(format!("{cuda}/augment_cpu.c"))
        .include(cuda)
        .std("c11")
        .flag("-ffp-contract=off")
        .opt_level(2)
        .compile("foreload_kernels");
}
