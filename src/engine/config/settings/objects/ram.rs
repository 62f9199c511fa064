//! `foreload.Ram`: a tier of the cache, in memory.

use super::ObjectRow;
use super::SettingsObject::Ram;
use crate::config::settings::forms::{ByteCount, Maybe, OneOf};
use crate::config::settings::table::settings;
use crate::config::settings::{Affects, Setting, Topic, ValueKind};
use store::tier::{FormChoice, TierName, TierOptions};

pub(super) static ROW: ObjectRow = ObjectRow {
    keyword: "cache",
    is_usual: false,
    positional: 1,
    members: MEMBERS,
    summary: "A cache in memory, for `cache=` of a loader.",
    story: "Memory suits datasets on slow storage, alone or in front of a `Directory`. Each sample is kept once, so \
            the sizes add up. The copies end with the process. Each rank keeps the samples that it reads itself.",
    example: "cache=[foreload.Ram(\"20GB\"), foreload.Directory(\"/nvme/foreload\", \"800GB\")]",
};

settings! {
    /// The tier of `cache` in memory: a `foreload.Ram`. The tier does not exist without a size.
    RamChoice, |options| options.cache.ram;

    /// The members of `foreload.Ram`.
    MEMBERS;

    /// The bytes of this node's memory that copies may take, or a text such as `"20GB"`. Each of the node's ranks has
    /// an equal part, in addition to `memory`, and allocates it as it fills. It must be free when the first epoch
    /// begins.
    size: Option<u64> = None, Maybe(ByteCount), Cache, Nothing.only_in(Ram, "cache_ram");

    /// The storage format of copies in memory, as for a `Directory`.
    form: FormChoice = FormChoice::Auto, OneOf::names(), Cache, Nothing.only_in(Ram, "cache_ram_form");
}

impl RamChoice {
    pub(super) fn tier(&self) -> Option<TierOptions> {
        self.size.map(|size| TierOptions::Ram { name: TierName::RAM, size, form: self.form })
    }
}
