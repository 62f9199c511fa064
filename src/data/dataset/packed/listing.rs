//! Lists packed shards: makes the rows of the index from the footers alone.

use super::super::bad_shards::UnreadShards;
use super::super::build::{GroupRows, IndexBuilder, IndexGroup, SampleRow, ShardRows};
use super::super::cancel::Cancel;
use super::super::layouts::PackedShards;
use super::super::member::{MemberPlace, MemberRow};
use super::super::open::IndexProgress;
use super::super::parallel::collect;
use super::super::samples::{ShardContents, ShardFindings, split, text};
use super::super::shards::{self, ReadShard};
use super::super::{Layout, Notes};
use super::footer::{FIRST_MEMBER, PACKED_FORMAT, PackedFooter, ShardIdentity, next_image};
use super::manifest::PackedManifest;
use super::shard_name;
use crate::source::{DatasetSource, Malformed, ReadAt};
use base::error::{Error, Result};
use base::parts::RawHeaderSummary;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The samples of a packed shard.
///
/// # Errors
/// [`Malformed`] for a file that is not a valid packed shard.
pub fn shard_contents<S: ReadAt + ?Sized>(source: &S) -> Result<ShardContents, Malformed> {
    let (footer, identity) = PackedFooter::read(source)?;
    let rows = rows(&footer).map_err(|message| Malformed { offset: identity.bytes, message })?;
    Ok(ShardContents {
        rows,
        findings: ShardFindings { packed: Some((footer, identity)), ..ShardFindings::default() },
    })
}

fn rows(footer: &PackedFooter) -> Result<ShardRows, String> {
    let mut rows = ShardRows { header_summaries: footer.header_summaries.clone(), ..ShardRows::default() };
    let of_files = footer.layout.is_of_files();
    let with_members = footer.layout == Layout::Tar || !of_files && !footer.table.keys.is_empty();
    let image = footer.table.image.as_ref().filter(|_| footer.layout == Layout::Parallel);
    let key = |number: usize, name: &[u8]| {
        let key = match of_files {
            // The first member has the name of its file, as samples do, and the others those of their fields.
            false if number == 0 && image.is_some() => image.cloned(),
            true => split(name).map(|(_, suffix)| text(&suffix)),
            false => Some(text(name)).filter(|name| footer.table.keys.binary_search(name).is_ok()),
        };
        key.ok_or_else(|| format!("member {:?} of the packed shard has no key", text(name)))
    };
    if !of_files {
        rows.keys.clone_from(&footer.table.keys);
        rows.kinds.clone_from(&footer.table.kinds);
        rows.columns.clone_from(&footer.table.columns);
    } else if with_members {
        let keys = footer.by_sample().flat_map(|(_, members)| members).map(|(_, name)| key(0, name));
        rows.keys = keys.collect::<Result<BTreeSet<String>, String>>()?.into_iter().collect();
    }
    let mut free = FIRST_MEMBER;
    for (number, (sample, members)) in footer.by_sample().enumerate() {
        let Some(&(image, name)) = members.first() else {
            rows.samples.push(SampleRow { offset: free, length: 0, label: sample.label });
            rows.counts.extend(with_members.then_some(0));
            continue;
        };
        free = members.last().map_or(free, |(last, _)| next_image(last.offset, last.length));
        let mut row = SampleRow { offset: image.offset, length: image.length, label: sample.label };
        if with_members {
            let mut own = Vec::with_capacity(members.len());
            for (at, (member, name)) in members.iter().enumerate() {
                let key = key(at, name)?;
                let number = rows.keys.partition_point(|known| *known < key) as u32;
                let place = MemberPlace::new(image.offset, member.offset, member.length);
                let place = place.ok_or("a member of the packed shard is too far from its image")?;
                let place = MemberPlace { packed: member.form == PACKED_FORMAT, ..place };
                own.push(MemberRow { key: number, place });
            }
            let first_key = own[0].key;
            own.sort_by_key(|row| row.key);
            // Two members of the same name are an error only for loaders that select this member, as for tar shards.
            own.dedup_by(|second, first| {
                let same = second.key == first.key;
                if same {
                    first.place.length = MemberPlace::DUPLICATE;
                }
                same
            });
            if own.iter().any(|row| row.key == first_key && row.place.length == MemberPlace::DUPLICATE) {
                row.length = 0;
            }
            rows.counts.push(own.len() as u32);
            rows.members.extend(own);
        }
        if !of_files && !footer.table.is_image(name, footer.layout) {
            // The member that replaces a missing image is not the sample's image, so drop its length and its header
            // summary.
            row.length = 0;
            rows.header_summaries[number] = RawHeaderSummary::default();
        }
        rows.samples.push(row);
    }
    Ok(rows)
}

/// Indexes the shards of a packed dataset, and checks that each shard is the one in `manifest`. A shard that differs or
/// cannot be read is added to `unread`. Returns the notes about the source.
pub(in crate::dataset) fn index(
    source: &dyn DatasetSource,
    manifest: &PackedManifest,
    builder: &mut IndexBuilder,
    unread: &mut UnreadShards,
    threads: usize,
    progress: &IndexProgress,
    cancel: &Cancel,
) -> Result<Notes> {
    let count = manifest.shards.len();
    progress.expect(count as u64, "shards");
    let next = AtomicUsize::new(0);
    let firsts: Vec<u64> = manifest
        .shards
        .iter()
        .scan(0, |first, shard| Some(std::mem::replace(first, *first + shard.samples)))
        .collect();
    let checked = |number: usize, ShardContents { rows, findings }: ShardContents| {
        let wrong = |message: String| Error::dataset(source.path(shard_name(number).as_bytes()), message);
        let (footer, identity): (PackedFooter, ShardIdentity) =
            findings.packed.ok_or_else(|| wrong("is not a packed shard".to_owned()))?;
        manifest.check_shard(number, firsts[number], &footer, &identity).map_err(wrong)?;
        Ok(rows)
    };
    let read = |number: usize| -> Result<ReadShard<ShardRows>> {
        let name = shard_name(number).into_bytes();
        let ReadShard { stamp, found } = shards::read(source, &name, &PackedShards, cancel)?;
        Ok(ReadShard { stamp, found: found.and_then(|contents| checked(number, contents)) })
    };
    collect(
        threads.min(count),
        |send| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count || !send(read(number).map(|read| (number, read))) {
                    return;
                }
            }
        },
        |(number, ReadShard { stamp, found }): (usize, ReadShard<ShardRows>)| {
            let path = shard_name(number).into_bytes();
            let rows = found.unwrap_or_else(|error| {
                unread.add(&path, error);
                ShardRows::default()
            });
            builder.add(&IndexGroup { path, stamp, rows: GroupRows::Shard(rows) })?;
            progress.step(1);
            Ok(())
        },
    )?;
    Ok(Notes { packed_of: Some(manifest.layout), ..manifest.notes.clone() })
}
