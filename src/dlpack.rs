//! The DLPack ABI (<https://dmlc.github.io/dlpack>, version 1.0 and the unversioned one before it).
//!
//! A managed tensor owns a [`Tensor`]; whoever consumes it calls its deleter, on any thread, with or without the GIL.

use crate::batch::{Element, Loan, Place, Tensor};
use crate::error::Result;
use std::ffi::c_void;

/// `kDLCPU`.
pub(crate) const DEVICE_CPU: i32 = 1;
/// `kDLCUDA`.
pub(crate) const DEVICE_CUDA: i32 = 2;
/// Name of a capsule that holds a [`ManagedTensor`].
pub(crate) const LEGACY_NAME: &std::ffi::CStr = c"dltensor";
/// Name of a capsule that holds a [`ManagedTensorVersioned`].
pub(crate) const VERSIONED_NAME: &std::ffi::CStr = c"dltensor_versioned";
/// The version this module writes: (major, minor).
pub(crate) const VERSION: (u32, u32) = (1, 0);
/// Flag of a versioned tensor: the data were copied for the consumer.
pub(crate) const FLAG_COPIED: u64 = 2;

/// `DLDevice`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DlDevice {
    /// `DLDeviceType`.
    pub kind: i32,
    /// Ordinal.
    pub id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataType {
    /// `DLDataTypeCode`.
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// Lanes; 1.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct DlTensor {
    /// First element.
    pub data: *mut c_void,
    /// Where the data are.
    pub device: DlDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// Type of an element.
    pub dtype: DataType,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` strides in elements; always given, as consumers differ over a null here.
    pub strides: *mut i64,
    /// 0.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, the ABI before 1.0.
#[repr(C)]
pub(crate) struct ManagedTensor {
    /// The tensor.
    pub tensor: DlTensor,
    /// The owner.
    pub context: *mut c_void,
    /// Frees everything, this structure included.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// `DLManagedTensorVersioned`, since 1.0.
#[repr(C)]
pub(crate) struct ManagedTensorVersioned {
    /// Major and minor version.
    pub version: (u32, u32),
    /// The owner.
    pub context: *mut c_void,
    /// Frees everything, this structure included.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    /// Bit 0: read-only; bit 1: a copy.
    pub flags: u64,
    /// The tensor.
    pub tensor: DlTensor,
}

impl From<Place> for DlDevice {
    fn from(place: Place) -> Self {
        match place {
            Place::Host => Self { kind: DEVICE_CPU, id: 0 },
            Place::Cuda(ordinal) => Self { kind: DEVICE_CUDA, id: ordinal as i32 },
        }
    }
}

/// What a consumer gets.
pub(crate) enum Share {
    /// The tensor itself, where it is; on a GPU lent to the consumer's stream until the consumer deletes it.
    Same(Option<Loan>),
    /// A copy in host memory.
    HostCopy,
}

/// What a managed tensor points into.
struct Owner {
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    data: Data,
}

enum Data {
    /// The loan ends before the tensor does.
    #[expect(dead_code, reason = "held, not used")]
    Shared(Option<Loan>, Tensor),
    Copied(Box<[Aligned]>),
}

/// Memory aligned as DLPack asks.
#[repr(C, align(256))]
#[derive(Clone, Copy)]
struct Aligned([u8; 256]);

/// The element type as DLPack writes it.
fn data_type(element: Element) -> DataType {
    // DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool.
    let (code, bits) = match element {
        Element::F32 => (2, 32),
        Element::F16 => (2, 16),
        Element::Bf16 => (4, 16),
        Element::U8 => (1, 8),
        Element::F64 => (2, 64),
        Element::I8 => (0, 8),
        Element::I16 => (0, 16),
        Element::I32 => (0, 32),
        Element::I64 => (0, 64),
        Element::U16 => (1, 16),
        Element::U32 => (1, 32),
        Element::U64 => (1, 64),
        Element::Bool => (6, 8),
    };
    DataType { code, bits, lanes: 1 }
}

/// An owner of `tensor` (or of a copy of its data) and the `DLTensor` that points into it.
fn export(tensor: Tensor, share: Share) -> Result<(Box<Owner>, DlTensor)> {
    let shape: Box<[i64]> = tensor.shape().into();
    let mut strides: Box<[i64]> = shape.clone();
    let mut step = 1;
    for (stride, length) in strides.iter_mut().zip(&shape).rev() {
        *stride = step;
        step *= (*length).max(1);
    }
    let dtype = data_type(tensor.element());
    let mut device = tensor.place().into();
    let data = match share {
        Share::Same(loan) => Data::Shared(loan, tensor),
        Share::HostCopy => {
            device = Place::Host.into();
            let block = |bytes: &[u8]| {
                let mut block = Aligned([0; 256]);
                block.0[..bytes.len()].copy_from_slice(bytes);
                block
            };
            Data::Copied(tensor.read()?.chunks(256).map(block).collect())
        }
    };
    let mut owner = Box::new(Owner { shape, strides, data });
    let data = match &mut owner.data {
        Data::Shared(_, tensor) => tensor.data(),
        Data::Copied(blocks) => blocks.as_mut_ptr().cast(),
    };
    let tensor = DlTensor {
        data: data.cast(),
        device,
        ndim: owner.shape.len() as i32,
        dtype,
        shape: owner.shape.as_mut_ptr(),
        strides: owner.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    Ok((owner, tensor))
}

/// `tensor` as the legacy ABI wants it. Its deleter must be called exactly once.
///
/// # Errors
/// [`Error::Gpu`](crate::Error::Gpu) when a copy from a GPU fails.
pub(crate) fn managed(tensor: Tensor, share: Share) -> Result<*mut ManagedTensor> {
    let (owner, tensor) = export(tensor, share)?;
    let context = Box::into_raw(owner).cast();
    Ok(Box::into_raw(Box::new(ManagedTensor { tensor, context, deleter: Some(delete) })))
}

/// `tensor` as DLPack 1.0 wants it. Its deleter must be called exactly once.
///
/// # Errors
/// As [`managed`].
pub(crate) fn managed_versioned(tensor: Tensor, share: Share) -> Result<*mut ManagedTensorVersioned> {
    let flags = if matches!(share, Share::HostCopy) { FLAG_COPIED } else { 0 };
    let (owner, tensor) = export(tensor, share)?;
    let context = Box::into_raw(owner).cast();
    Ok(Box::into_raw(Box::new(ManagedTensorVersioned {
        version: VERSION,
        context,
        deleter: Some(delete_versioned),
        flags,
        tensor,
    })))
}

/// # Safety
/// `tensor` comes from [`managed`] and is not used again.
unsafe extern "C" fn delete(tensor: *mut ManagedTensor) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: by this function's contract both boxes were leaked by `managed` and are freed here only.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.context.cast::<Owner>()));
    }
}

/// # Safety
/// `tensor` comes from [`managed_versioned`] and is not used again.
unsafe extern "C" fn delete_versioned(tensor: *mut ManagedTensorVersioned) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: by this function's contract both boxes were leaked by `managed_versioned` and are freed here only.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.context.cast::<Owner>()));
    }
}

/// Frees a capsule's tensor that nobody consumed.
///
/// # Safety
/// `tensor` comes from [`managed`] and is not used again.
pub(crate) unsafe fn discard(tensor: *mut ManagedTensor) {
    // SAFETY: passed on.
    unsafe { delete(tensor) }
}

/// Frees a capsule's tensor that nobody consumed.
///
/// # Safety
/// `tensor` comes from [`managed_versioned`] and is not used again.
pub(crate) unsafe fn discard_versioned(tensor: *mut ManagedTensorVersioned) {
    // SAFETY: passed on.
    unsafe { delete_versioned(tensor) }
}

// The layout is the ABI.
const _: () = assert!(size_of::<DlTensor>() == 48 || cfg!(not(target_pointer_width = "64")));
