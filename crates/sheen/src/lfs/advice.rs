//! `lfs ladvise`: what programs say of data that they will use.

use super::{ask, each, open, parse_bytes};
use crate::ioctl::{Ask, Tell};
use anyhow::{Context, Result, bail};
use base::{Advice, Extent};
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct Ladvise {
    /// willread: OSTs fetch it into their memory; dontneed: they let it go, but for what is not on their disks
    #[arg(short = 'a', long = "advice", value_name = "ADVICE")]
    advice: String,
    /// For scripts of Lustre: nobody waits for the OSTs' disks in any case
    #[arg(short = 'b', long)]
    background: bool,
    /// First byte [default: 0]
    #[arg(short = 's', long, value_name = "BYTES")]
    start: Option<String>,
    /// Byte behind the last one [default: the end of the file]
    #[arg(short = 'e', long, value_name = "BYTES", conflicts_with = "length")]
    end: Option<String>,
    #[arg(short = 'l', long, value_name = "BYTES")]
    length: Option<String>,
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

impl Ladvise {
    /// # Errors
    /// Bad words, before anything is advised; or the last file that cannot be.
    pub fn run(&self) -> Result<()> {
        let request = Ask::Advise { extent: self.extent()?, advice: self.advice()? };
        each(&self.paths, |path| {
            let file = open(path)?;
            if !file.metadata().with_context(|| path.display().to_string())?.is_file() {
                bail!("{} is no regular file; advice is about data", path.display());
            }
            match ask(&file, path, &request)? {
                Tell::Done => Ok(()),
                _ => bail!("{}: the mount's answer cannot be read", path.display()),
            }
        })
    }

    fn advice(&self) -> Result<Advice> {
        match self.advice.as_str() {
            "willread" => Ok(Advice::WillRead),
            "dontneed" => Ok(Advice::DontNeed),
            "lockahead" | "noexpand" | "locknoexpand" => bail!(
                "advice '{}' is not known here: locks are as large as others leave them; see docs/limits.md",
                self.advice
            ),
            other => bail!("unknown advice '{other}'; there are willread and dontneed"),
        }
    }

    fn extent(&self) -> Result<Extent> {
        let start = bytes(self.start.as_deref())?.unwrap_or(0);
        let end = match (bytes(self.end.as_deref())?, bytes(self.length.as_deref())?) {
            (Some(end), _) => end,
            (None, Some(length)) => start.saturating_add(length),
            (None, None) => Extent::EOF,
        };
        if end <= start {
            bail!("[{start}, {end}) is no range; give an end behind the start, or a length");
        }
        Ok(Extent::new(start, end))
    }
}

fn bytes(text: Option<&str>) -> Result<Option<u64>> {
    let parse = |text: &str| {
        parse_bytes(text).with_context(|| format!("'{text}' is no number of bytes; K, M, G, T may follow it"))
    };
    text.map(parse).transpose()
}
