//! The flag `--checksum`: a hash of every byte that the consumer gets.

use base::error::Result;
use engine::batch::{Batch, FieldValues, Tensor};
use sha2::{Digest, Sha256};

#[derive(Default)]
pub(super) struct EpochChecksum(Sha256);

impl EpochChecksum {
    pub(super) fn add(&mut self, batch: &Batch) -> Result<()> {
        let images = (1..batch.num_images()).map(|number| batch.images_of(number));
        let columns = (0..batch.num_columns()).map(|number| batch.further(number));
        // The settings determine the shapes and types of these tensors, so only their bytes are hashed.
        let usual = [batch.images(), batch.labels(), batch.sample_ids(), batch.mask()];
        for tensor in usual.into_iter().chain(images).chain(columns) {
            self.0.update(tensor.read()?);
        }
        (0..batch.num_values()).try_for_each(|number| self.values(&batch.values(number)))
    }

    /// Adds values of variable size. Each value is hashed with its kind and size, so that different batches never give
    /// the same bytes.
    fn values(&mut self, values: &FieldValues) -> Result<()> {
        match values {
            FieldValues::Texts(texts) => {
                self.0.update(b"texts");
                texts.iter().for_each(|text| self.bytes(text.as_ref().map(String::as_bytes)));
            }
            FieldValues::Bytes(values) => {
                self.0.update(b"bytes");
                values.iter().for_each(|value| self.bytes(value.as_deref()));
            }
            FieldValues::Dense(tensor) => {
                self.0.update(b"dense");
                self.tensor(tensor)?;
            }
            FieldValues::Ragged { values, offsets } => {
                self.0.update(b"ragged");
                self.tensor(values)?;
                self.tensor(offsets)?;
            }
            FieldValues::Tensors(tensors) => {
                self.0.update(b"tensors");
                for tensor in tensors {
                    self.0.update([u8::from(tensor.is_some())]);
                    tensor.as_ref().map_or(Ok(()), |tensor| self.tensor(tensor))?;
                }
            }
        }
        Ok(())
    }

    fn tensor(&mut self, tensor: &Tensor) -> Result<()> {
        self.bytes(Some(tensor.element().name().as_bytes()));
        self.0.update((tensor.shape().len() as u64).to_le_bytes());
        tensor.shape().iter().for_each(|length| self.0.update(length.to_le_bytes()));
        self.0.update(tensor.read()?);
        Ok(())
    }

    fn bytes(&mut self, bytes: Option<&[u8]>) {
        self.0.update([u8::from(bytes.is_some())]);
        if let Some(bytes) = bytes {
            self.0.update((bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
    }

    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
