//! Loads epochs of a dataset as any Rust program would, and prints the images of each: `outside DATA EPOCHS`. `run.py`
//! compares its processor time with that of `foreload bench`.

use foreload::{Contents, DatasetIndex, LoaderOptions, Pipeline};
use std::sync::Arc;

fn main() -> foreload::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().expect("the first argument is a dataset");
    let epochs = arguments.next().map_or(1, |text| text.parse().expect("the second argument is a number"));
    let options = LoaderOptions { batch_size: 64, ..LoaderOptions::default() };
    let checked = options.validate()?;
    let index = Arc::new(DatasetIndex::open(root.as_ref(), &checked.index_options(Contents::Images))?);
    let pipeline = Pipeline::new(index.clone(), checked.check(&index)?);
    for number in 0..epochs {
        let (mut epoch, mut images) = (pipeline.epoch(number, 0, 1, 0)?, 0);
        while let Some(batch) = epoch.next_batch()? {
            images += batch.len();
        }
        println!("{images}");
    }
    Ok(())
}
