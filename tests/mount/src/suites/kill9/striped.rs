//! Directories over all MDTs, made, filled, renamed and removed by somebody who must see no failure.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::Load;
use crate::case::{expect_bytes, expect_eq, names, read, write};
use crate::cluster::Cluster;
use crate::load::Stop;
use crate::random::Random;

const NAME_COUNT: u64 = 8;
const FILES_MAX: u64 = 12;

/// What one worker has made in a directory of its own.
pub struct Forest<'a> {
    cluster: &'a Cluster,
    directory: PathBuf,
    stripe_count: u32,
    /// Striped directories, and the files in each, which hold the names that they were made with.
    model: BTreeMap<String, BTreeMap<String, String>>,
    made: u64,
    /// Operations done.
    done: u64,
}

impl Forest<'_> {
    pub fn new(cluster: &Cluster, directory: PathBuf, stripe_count: u32) -> Result<Forest<'_>> {
        fs::create_dir(&directory)?;
        Ok(Forest { cluster, directory, stripe_count, model: BTreeMap::new(), made: 0, done: 0 })
    }

    fn step(&mut self, random: &mut Random) -> Result<()> {
        let (name, other) = (directory_name(random), directory_name(random));
        let file = self.model.get(&name).and_then(|files| {
            let at = random.size(files.len().max(1));
            files.keys().nth(at).cloned()
        });
        match (random.below(9), file) {
            _ if !self.model.contains_key(&name) => self.make(&name, random),
            (0, _) if !self.model.contains_key(&other) => self.rename(&name, &other),
            (1, _) => self.remove(&name),
            (2 | 3, Some(file)) => self.move_file(&name, &file, &name),
            (4 | 5, Some(file)) if self.model.contains_key(&other) => self.move_file(&name, &file, &other),
            (6, Some(file)) => self.remove_file(&name, &file),
            (7, _) => self.look(&name),
            _ => self.make_file(&name),
        }
    }

    fn make(&mut self, name: &str, random: &mut Random) -> Result<()> {
        let (count, path) = (self.stripe_count.to_string(), self.directory.join(name));
        self.cluster.sheen(&["lfs", "mkdir", "-c", &count, &path.to_string_lossy()])?;
        self.model.insert(name.to_owned(), BTreeMap::new());
        (0..random.below(FILES_MAX)).try_for_each(|_| self.make_file(name))
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("file{}", self.made)
    }

    fn files(&mut self, name: &str) -> Result<&mut BTreeMap<String, String>> {
        self.model.get_mut(name).with_context(|| format!("no {name} in the model"))
    }

    fn make_file(&mut self, name: &str) -> Result<()> {
        let file = self.new_name();
        write(&self.directory.join(name).join(&file), file.as_bytes())?;
        self.files(name)?.insert(file.clone(), file);
        Ok(())
    }

    /// To a new name, which has another stripe as often as not.
    fn move_file(&mut self, name: &str, file: &str, to: &str) -> Result<()> {
        let new = self.new_name();
        fs::rename(self.directory.join(name).join(file), self.directory.join(to).join(&new))
            .with_context(|| format!("rename {name}/{file} to {to}/{new}"))?;
        let made_as = self.files(name)?.remove(file).context("in the model")?;
        self.files(to)?.insert(new, made_as);
        Ok(())
    }

    fn remove_file(&mut self, name: &str, file: &str) -> Result<()> {
        fs::remove_file(self.directory.join(name).join(file))
            .with_context(|| format!("unlink {name}/{file}"))?;
        self.files(name)?.remove(file);
        Ok(())
    }

    fn rename(&mut self, name: &str, other: &str) -> Result<()> {
        fs::rename(self.directory.join(name), self.directory.join(other))
            .with_context(|| format!("rename {name} to {other}"))?;
        let files = self.model.remove(name).context("in the model")?;
        self.model.insert(other.to_owned(), files);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        fs::remove_dir_all(self.directory.join(name)).with_context(|| format!("remove {name}"))?;
        self.model.remove(name);
        Ok(())
    }

    fn look(&self, name: &str) -> Result<()> {
        let (path, files) = (self.directory.join(name), &self.model[name]);
        let found: BTreeSet<String> = names(&path)?.into_iter().collect();
        expect_eq(found, files.keys().cloned().collect::<BTreeSet<_>>(), name)?;
        files.iter().try_for_each(|(file, made_as)| {
            expect_bytes(&read(&path.join(file))?, made_as.as_bytes(), &format!("{name}/{file}"))
        })
    }
}

fn directory_name(random: &mut Random) -> String {
    format!("striped{}", random.below(NAME_COUNT))
}

impl Load for Forest<'_> {
    fn work(&mut self, stop: &Stop, random: &mut Random) -> Result<()> {
        while !stop.is_over() {
            self.step(random)
                .with_context(|| format!("operation {} in {}", self.done, self.directory.display()))?;
            self.done += 1;
        }
        Ok(())
    }

    fn done(&self) -> u64 {
        self.done
    }

    /// Everything is there, nothing else is, and it has its stripes.
    fn check(&self) -> Result<()> {
        let expected: Vec<String> = self.model.keys().cloned().collect();
        expect_eq(names(&self.directory)?, expected, "striped directories")?;
        for name in self.model.keys() {
            self.look(name)?;
            let path = self.directory.join(name);
            let said = self.cluster.sheen(&["lfs", "getdirstripe", "-c", &path.to_string_lossy()])?;
            expect_eq(said.trim(), self.stripe_count.to_string().as_str(), &format!("stripes of {name}"))?;
        }
        Ok(())
    }
}
