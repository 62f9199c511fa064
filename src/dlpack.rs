//! The DLPack ABI (<https://dmlc.github.io/dlpack>, version 1.0 and the unversioned one before it).
//!
//! A managed tensor owns a [`Tensor`]. Its consumer may call its deleter on any thread, with or without the GIL.

use base::error::Result;
use engine::batch::{Element, Place, StreamUse, Tensor};
use std::ffi::c_void;

pub(crate) const DEVICE_CPU: i32 = 1;
pub(crate) const DEVICE_CUDA: i32 = 2;
/// Name of a Python capsule with a [`ManagedTensor`]: the DLPack ABI before 1.0.
pub(crate) const LEGACY_NAME: &std::ffi::CStr = c"dltensor";
/// Name of a Python capsule with a [`ManagedTensorVersioned`]: the DLPack ABI since 1.0.
pub(crate) const VERSIONED_NAME: &std::ffi::CStr = c"dltensor_versioned";
pub(crate) const VERSION: (u32, u32) = (1, 0);
/// Flag of [`ManagedTensorVersioned`] which says that the data are a copy, made for the consumer.
pub(crate) const FLAG_COPIED: u64 = 2;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DlDevice {
    pub kind: i32,
    pub id: i32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct DlTensor {
    pub data: *mut c_void,
    pub device: DlDevice,
    pub ndim: i32,
    pub dtype: DataType,
    pub shape: *mut i64,
    /// The stride of each dimension, in elements. Never null, because consumers differ in how they treat a null
    /// pointer.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
pub(crate) struct ManagedTensor {
    pub tensor: DlTensor,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

#[repr(C)]
pub(crate) struct ManagedTensorVersioned {
    pub version: (u32, u32),
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    pub flags: u64,
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

pub(crate) enum Share {
    /// The consumer gets the tensor itself, without a copy. On a GPU the tensor is leased to the consumer's stream
    /// (`StreamUse`) until the consumer deletes it.
    Same(Option<StreamUse>),
    HostCopy,
}

struct Owner {
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    data: Data,
}

enum Data {
    /// The lease (`StreamUse`) is the first field, so it ends before the tensor is dropped.
    #[expect(dead_code, reason = "held, not used")]
    Shared(Option<StreamUse>, Tensor),
    Copied(Box<[Aligned]>),
}

/// Memory with the alignment that DLPack requires.
#[repr(C, align(256))]
#[derive(Clone, Copy)]
struct Aligned([u8; 256]);

fn data_type(element: Element) -> DataType {
    // Codes of DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool.
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

/// Makes a `DLTensor` and the owner of the memory that it points to. That memory is the data of `tensor`, or a copy.
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

/// Exports `tensor` by the legacy ABI. The deleter of the result must be called exactly once.
///
/// # Errors
/// [`Error::Gpu`](crate::Error::Gpu) when a copy from a GPU fails.
pub(crate) fn managed(tensor: Tensor, share: Share) -> Result<*mut ManagedTensor> {
    let (owner, tensor) = export(tensor, share)?;
    let context = Box::into_raw(owner).cast();
    Ok(Box::into_raw(Box::new(ManagedTensor { tensor, context, deleter: Some(delete) })))
}

/// Exports `tensor` by DLPack 1.0. The deleter of the result must be called exactly once.
///
/// # Errors
/// The errors of [`managed`].
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

/// Frees the tensor of a capsule that no consumer took.
///
/// # Safety
/// `tensor` comes from [`managed`] and is not used again.
pub(crate) unsafe fn discard(tensor: *mut ManagedTensor) {
    // SAFETY: the contract of `delete` is the same as this function's.
    unsafe { delete(tensor) }
}

/// Frees the tensor of a capsule that no consumer took.
///
/// # Safety
/// `tensor` comes from [`managed_versioned`] and is not used again.
pub(crate) unsafe fn discard_versioned(tensor: *mut ManagedTensorVersioned) {
    // SAFETY: the contract of `delete_versioned` is the same as this function's.
    unsafe { delete_versioned(tensor) }
}

// The layout must match the ABI.
const _: () = assert!(size_of::<DlTensor>() == 48 || cfg!(not(target_pointer_width = "64")));
