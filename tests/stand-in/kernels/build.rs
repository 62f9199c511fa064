//! Compiles the kernels for the CPU, with the arithmetic of the GPU: no multiplication is fused with an addition.
//!
//! The decoding kernels may read bytes of an attacker. They are compiled such that a program aborts at an index beyond
//! an array, an undefined shift, or an overflow of a signed sum.

fn main() {
    let cuda = "../../../cuda";
    // A folder stands for the files in it, but not for those in its subfolders.
    for folder in ["decode", "indexed", "ops", "packed"] {
        println!("cargo:rerun-if-changed={cuda}/{folder}");
    }
    for entry in std::fs::read_dir(cuda).expect("the folder of the kernels") {
        let path = entry.expect("a file of the kernels").path();
        if path.extension().is_some_and(|kind| kind == "cuh" || kind == "c") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let compile = |name: &str, checks: &[&str]| {
        let mut build = cc::Build::new();
        build.file(format!("{cuda}/{name}.c")).include(cuda).std("c11").opt_level(2);
        build.flag("-ffp-contract=off");
        checks.iter().for_each(|check| {
            build.flag(check);
        });
        build.compile(&format!("foreload_{name}"));
    };
    compile("augment_cpu", &[]);
    let watched = "-fsanitize=bounds,shift,signed-integer-overflow,integer-divide-by-zero";
    compile("decode_cpu", &[watched, "-fsanitize-undefined-trap-on-error"]);
}
