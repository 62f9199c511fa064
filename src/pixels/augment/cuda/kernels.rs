//! The compiled kernels of `cuda/`. `make kernels` writes them; `make check` compiles them again and compares.

use crate::gpu::{Capability, KernelImage};

const fn capability(major: u32, minor: u32) -> Capability {
    Capability { major, minor }
}

/// The kernels: machine code for today's devices, and PTX of an old version for later devices.
pub(crate) const KERNELS: [KernelImage; 7] = [
    KernelImage::Cubin(capability(8, 0), include_bytes!("../../../../cuda/kernels/sm_80.cubin")),
    KernelImage::Cubin(capability(8, 6), include_bytes!("../../../../cuda/kernels/sm_86.cubin")),
    KernelImage::Cubin(capability(8, 9), include_bytes!("../../../../cuda/kernels/sm_89.cubin")),
    KernelImage::Cubin(capability(9, 0), include_bytes!("../../../../cuda/kernels/sm_90.cubin")),
    KernelImage::Cubin(capability(10, 0), include_bytes!("../../../../cuda/kernels/sm_100.cubin")),
    KernelImage::Cubin(capability(12, 0), include_bytes!("../../../../cuda/kernels/sm_120.cubin")),
    KernelImage::Ptx(capability(8, 0), include_str!("../../../../cuda/kernels/compute_80.ptx")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::augment::cuda::Launch;
    use crate::augment::cuda::views::{ERASE, OPS};
    use crate::augment::{Fidelity, Output};
    use crate::decode::cuda::CudaKernel;

    fn names() -> Vec<&'static str> {
        let passes = [Fidelity::Fast, Fidelity::Exact].map(|fidelity| {
            let output = Output {
                height: 1,
                width: 1,
                dtype: Default::default(),
                format: Default::default(),
                mean: [0.0; 3],
                std: [1.0; 3],
                fill: [0; 3],
                fidelity,
            };
            Launch::kernel(&output)
        });
        let more = ["foreload_untouched", OPS, ERASE, super::super::mixing::MIX];
        [&passes[..], &more, &CudaKernel::ALL.map(CudaKernel::name)].concat()
    }

    #[test]
    fn each_image_is_for_the_device_it_says() {
        let word = |code: &[u8], at: usize| u32::from_le_bytes(code[at..at + 4].try_into().unwrap());
        for image in KERNELS {
            match image {
                KernelImage::Cubin(capability, code) => {
                    assert_eq!((&code[..4], word(code, 16) >> 16), (&b"\x7fELF"[..], 190), "ELF for CUDA");
                    // The flags of the ELF header begin with the virtual architecture. Since version 8 of the ABI, they
                    // begin with the real architecture.
                    let flags = word(code, 48);
                    let own = if code[8] >= 8 { flags >> 8 & 0xff } else { flags & 0xff };
                    assert_eq!(own, 10 * capability.major + capability.minor);
                    for name in names() {
                        assert!(
                            code.windows(name.len()).any(|part| part == name.as_bytes()),
                            "{own}: {name}"
                        );
                    }
                }
                KernelImage::Ptx(capability, text) => {
                    let target = format!(".target sm_{}{}", capability.major, capability.minor);
                    // PTX version 8.0 belongs to CUDA 12.0, and every later driver accepts it.
                    assert!(text.contains("\n.version 8.0\n") && text.contains(&target));
                    assert!(!text.contains('\0'));
                    for name in names() {
                        assert!(text.contains(&format!(".visible .entry {name}(")), "{name}");
                    }
                }
            }
        }
    }

    /// Like the CPU, the kernels fuse a multiplication and an addition only where the source says so, and keep
    /// subnormal numbers.
    #[test]
    fn the_arithmetic_is_that_of_ieee_754() {
        for image in KERNELS {
            let KernelImage::Ptx(_, text) = image else { continue };
            let broken = |line: &&str| {
                [".ftz", ".approx", "mad.f", ".local", "fma.rz"].iter().any(|word| line.contains(word))
            };
            assert_eq!(text.lines().find(broken), None);
            assert!(text.contains("dp2a.lo.s32.u32") && text.contains("bar.sync"));
            for entry in text.split(".entry ").filter(|entry| !entry.starts_with(OPS)) {
                assert!(!entry.contains("fma."), "{}", &entry[..40]);
            }
        }
    }
}
