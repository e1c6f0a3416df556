//! Layouts as `lfs getstripe` prints them.

use super::stripes::name_of;
use base::layout::Component;
use base::{Extent, Layout, PoolName};
use std::fmt::Write;
use wire::{ComponentHint, LayoutHint};

/// What one of -c, -S, -i, -p asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    pub stripe_count: i64,
    pub stripe_size_bytes: u32,
    /// -1 for any.
    pub stripe_offset: i64,
    pub pool: Option<PoolName>,
    pub pattern: &'static str,
}

const RAID0: &str = "raid0";
/// Data on the MDT: no stripes, as in Lustre.
const ON_MDT: &str = "mdt";

/// Of the last component, as of the others only the beginnings of files are.
pub fn figures_of(layout: &Layout) -> Figures {
    let nothing = Figures {
        stripe_count: 0,
        stripe_size_bytes: Layout::STRIPE_SIZE_DEFAULT,
        stripe_offset: -1,
        pool: None,
        pattern: RAID0,
    };
    layout.components.last().map_or(nothing, figures_of_component)
}

fn figures_of_component(component: &Component) -> Figures {
    let is_on_mdt = component.is_on_mdt();
    Figures {
        stripe_count: if is_on_mdt { 0 } else { component.osts.len() as i64 },
        stripe_size_bytes: component.stripe_size_bytes,
        stripe_offset: match component.osts.first() {
            _ if is_on_mdt => 0,
            first => first.map_or(-1, |ost| i64::from(*ost)),
        },
        pool: component.pool.clone(),
        pattern: if is_on_mdt { ON_MDT } else { RAID0 },
    }
}

pub fn default_figures_of(hint: &LayoutHint) -> Figures {
    figures_of_hint(&hint.components.last().cloned().unwrap_or_default())
}

fn figures_of_hint(component: &ComponentHint) -> Figures {
    if component.osts.contains(&Layout::ON_MDT) {
        let stripe_size_bytes = component.stripe_size_bytes.unwrap_or(Layout::STRIPE_SIZE_MIN);
        return Figures { stripe_count: 0, stripe_size_bytes, stripe_offset: 0, pool: None, pattern: ON_MDT };
    }
    Figures {
        stripe_count: match component.stripe_count {
            _ if !component.osts.is_empty() => component.osts.len() as i64,
            None => 1,
            Some(u16::MAX) => -1,
            Some(count) => i64::from(count),
        },
        stripe_size_bytes: component.stripe_size_bytes.unwrap_or(Layout::STRIPE_SIZE_DEFAULT),
        stripe_offset: component.osts.first().copied().or(component.first_ost).map_or(-1, i64::from),
        pool: component.pool.clone(),
        pattern: RAID0,
    }
}

/// A file's, without the line of its path.
pub fn of_file(layout: &Layout) -> String {
    match &layout.components[..] {
        [] => plain(layout, 0),
        [only] if only.end_bytes == Extent::EOF => plain(layout, only.id),
        _ => composite(layout),
    }
}

fn keys(figures: Figures, generation: u32, indent: &str) -> String {
    let Figures { stripe_count, stripe_size_bytes, stripe_offset, pool, pattern } = figures;
    let pool = pool.map_or(String::new(), |pool| format!("{indent}lmm_pool:          {pool}\n"));
    format!(
        "{indent}lmm_stripe_count:  {stripe_count}\n{indent}lmm_stripe_size:   {stripe_size_bytes}\n\
         {indent}lmm_pattern:       {pattern}\n{indent}lmm_layout_gen:    {generation}\n\
         {indent}lmm_stripe_offset: {stripe_offset}\n{pool}"
    )
}

fn plain(layout: &Layout, generation: u32) -> String {
    let mut out = keys(figures_of(layout), generation, "");
    out += "\tobdidx\t\t objid\t\t objid\t\t group\n";
    for ost in layout.osts() {
        let (object, sequence) = (layout.fid.oid, layout.fid.seq);
        // Writing to memory cannot fail.
        let _ = writeln!(out, "\t{ost:6}\t{object:14}\t{object:#14x}\t{sequence:#14x}");
    }
    out
}

fn head(generation: u32, entry_count: usize) -> String {
    format!("  lcm_layout_gen:    {generation}\n  lcm_mirror_count:  1\n  lcm_entry_count:   {entry_count}\n")
}

fn entry_head(id: &str, mirror: &str, flags: &str, extent: Extent) -> String {
    format!(
        "    lcme_id:             {id}\n    lcme_mirror_id:      {mirror}\n    lcme_flags:          {flags}\n    \
         lcme_extent.e_start: {}\n    lcme_extent.e_end:   {}\n",
        extent.start,
        name_of(extent.end)
    )
}

fn composite(layout: &Layout) -> String {
    let generation = layout.components.iter().map(|component| component.id).max().unwrap_or(0);
    let mut parts = Vec::new();
    let mut start = 0;
    for component in &layout.components {
        let extent = Extent::new(start, component.end_bytes);
        parts.push(entry(layout, component, extent));
        start = component.end_bytes;
    }
    head(generation, layout.components.len()) + &parts.join("\n")
}

fn entry(layout: &Layout, component: &Component, extent: Extent) -> String {
    let mut out = entry_head(&component.id.to_string(), "0", "init", extent);
    out += &keys(figures_of_component(component), 0, "      ");
    if component.is_on_mdt() {
        return out;
    }
    out += "      lmm_objects:\n";
    for (stripe, ost) in component.osts.iter().enumerate() {
        let _ = writeln!(out, "      - {stripe}: {{ l_ost_idx: {ost}, l_fid: {} }}", layout.fid);
    }
    out
}

/// What new files in a directory get, without the line of its path.
pub fn of_directory(hint: &LayoutHint) -> String {
    if let Some(plain) = hint.as_plain() {
        return default_line(&plain);
    }
    let mut parts = Vec::new();
    let mut start = 0;
    for component in &hint.components {
        let end = component.end_bytes.unwrap_or(Extent::EOF);
        let entry = entry_head("N/A", "N/A", "0", Extent::new(start, end));
        parts.push(format!("{entry}      {}", default_line(component)));
        start = end;
    }
    head(0, hint.components.len()) + &parts.join("\n")
}

fn default_line(component: &ComponentHint) -> String {
    let Figures { stripe_count, stripe_size_bytes, stripe_offset, pool, pattern } =
        figures_of_hint(component);
    let mut line = format!(
        "stripe_count:  {stripe_count} stripe_size:   {stripe_size_bytes} pattern:       {pattern} stripe_offset: \
         {stripe_offset}"
    );
    if let Some(pool) = pool {
        line += &format!(" pool:          {pool}");
    }
    if !component.osts.is_empty() && pattern == RAID0 {
        let osts: Vec<String> = component.osts.iter().map(u16::to_string).collect();
        line += &format!(" osts:          {}", osts.join(","));
    }
    line + "\n"
}
