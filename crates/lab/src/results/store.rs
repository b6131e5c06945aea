//! A run's directory: created, continued, read.
//!
//! Invariants
//! - A line of `samples.jsonl` is valid only with its newline; text after the last newline is the
//!   remains of a crash and is overwritten.
//! - `run.json` is replaced whole.
//! - Two processes never write to one directory: the writer holds a lock on `lock`.

use super::{Experiment, FORMAT, Record, Remote, Run, Sample, Skipped};
use crate::scenario::Profile;
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const RUN: &str = "run.json";
const NEW: &str = "run.json.new";
const SAMPLES: &str = "samples.jsonl";
const LOCK: &str = "lock";
const CONFIGURATION: &str = "configuration";

/// Longest line of `samples.jsonl` and largest `run.json` that are read, in bytes.
const LARGEST: u64 = 64 << 20;

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Options and machine.
    pub run: Run,
    /// Those that count, in the order they were taken.
    pub samples: Vec<Sample>,
    /// Skipped cells, and those of void samples, without a later sample; each once.
    pub skipped: Vec<Skipped>,
    /// How each system was set up: scenario, system, text.
    pub configurations: Vec<(String, String, String)>,
}

/// Reads a run's directory, also during the run.
///
/// # Errors
/// It is no run's directory, or a file of it is damaged: which, and where.
pub fn load(dir: &Path) -> Result<Results> {
    let run = read_run(dir)?.with_context(|| format!("{}: holds no run ({RUN} is missing)", dir.display()))?;
    let path = dir.join(SAMPLES);
    let (records, _) = match open(&path, OpenOptions::new().read(true)) {
        Ok(file) => read_records(&file, &path)?,
        Err(error) if is_missing(&error) => (Vec::new(), 0),
        Err(error) => return Err(error),
    };
    let (samples, skipped) = settle(records);
    let mut configurations = Vec::new();
    for (scenario, system) in run
        .scenarios
        .keys()
        .flat_map(|id| run.systems.keys().map(move |name| (id, name)))
    {
        let path = configuration_path(dir, scenario, system)?;
        match read_text(&path) {
            Ok(text) => configurations.push((scenario.clone(), system.clone(), text)),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Results {
        run,
        samples,
        skipped,
        configurations,
    })
}

/// A skipped cell with a later sample is not skipped. A void sample is no sample.
fn settle(records: Vec<Record>) -> (Vec<Sample>, Vec<Skipped>) {
    let (mut samples, mut skipped): (Vec<Sample>, Vec<Skipped>) = (Vec::new(), Vec::new());
    for record in records {
        let record = match record {
            Record::Sample(sample) if !sample.is_valid() => Record::Skipped(Skipped {
                scenario: sample.scenario,
                system: sample.system,
                at: sample.at,
                reason: format!("a sample is void: {}", sample.validity.void.join("; ")),
                failed: true,
            }),
            other => other,
        };
        match record {
            Record::Sample(sample) => {
                skipped.retain(|skipped| !skipped.covers(&sample.scenario, &sample.system, &sample.at));
                samples.push(*sample);
            }
            Record::Skipped(new) if !skipped.contains(&new) => skipped.push(new),
            Record::Skipped(_) => {}
        }
    }
    (samples, skipped)
}

impl Skipped {
    /// Whether it is about such a cell.
    pub fn covers(&self, scenario: &str, system: &str, at: &std::collections::BTreeMap<String, String>) -> bool {
        self.scenario == scenario
            && self.system == system
            && self.at.iter().all(|(key, value)| at.get(key) == Some(value))
    }
}

/// A run's directory that is written to.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    run: Run,
    samples: File,
    /// Length of the complete lines.
    length: u64,
    records: Vec<Record>,
    _lock: Lock,
}

/// Keeps others away from a run's directory.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    /// Closing the file is not enough while a program is being started: the child holds the file
    /// and the lock until `exec`.
    fn drop(&mut self) {
        // On failure nothing else can be done, and the lock ends with the process anyway.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Store {
    /// Continues the run in a directory, or creates a run and the directory.
    ///
    /// # Errors
    /// The directory holds something else, a run on another machine or with another
    /// profile, or one that another process is working on; it cannot be made; a file of it is
    /// damaged.
    pub fn open(dir: &Path, fresh: Run) -> Result<Store> {
        fs::create_dir_all(dir).with_context(|| format!("{}: cannot be made", dir.display()))?;
        let lock = Lock(open(
            &dir.join(LOCK),
            OpenOptions::new().create(true).truncate(false).write(true),
        )?);
        if flock(&lock.0, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!("{}: another 'oxvs lab run' is at work on it", dir.display());
        }
        let old = read_run(dir)?;
        let new = old.is_none();
        let run = match old {
            Some(old) => same(old, &fresh).with_context(|| format!("{}: cannot be gone on with", dir.display()))?,
            None => fresh,
        };
        if new && let Some(foreign) = foreign_file(dir)? {
            fs::remove_file(dir.join(LOCK)).ok();
            bail!(
                "{}: holds no run, but other files ('{foreign}'): name an empty or a new directory",
                dir.display()
            );
        }
        let path = dir.join(SAMPLES);
        let mut samples = open(
            &path,
            OpenOptions::new().create(true).truncate(false).read(true).write(true),
        )?;
        let (records, length) = read_records(&samples, &path)?;
        samples
            .set_len(length)
            .and_then(|()| samples.seek(SeekFrom::End(0)))
            .with_context(|| path.display().to_string())?;
        let store = Store {
            dir: dir.to_owned(),
            run,
            samples,
            length,
            records,
            _lock: lock,
        };
        store.write_run()?;
        Ok(store)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Options and machine.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// All that was recorded, by earlier invocations too.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// All that is known, without the systems' configurations.
    pub fn results(&self) -> Results {
        let (samples, skipped) = settle(self.records.clone());
        Results {
            run: self.run.clone(),
            samples,
            skipped,
            configurations: Vec::new(),
        }
    }

    /// Enters an experiment.
    ///
    /// # Errors
    /// It exists with another text, so old and new samples must not be mixed.
    pub fn enter(&mut self, id: &str, mut experiment: Experiment) -> Result<()> {
        if let Some(old) = self.run.scenarios.get(id) {
            experiment.looks = old.looks;
            experiment.repeated.clone_from(&old.repeated);
            ensure!(
                old.hash == experiment.hash,
                "{}: has samples of another '{id}' (its file has changed since): name another directory with --out, or restore the file",
                self.dir.display()
            );
            // Another invocation may have chosen others.
            for (system, samples) in &old.chosen {
                experiment.chosen.entry(system.clone()).or_insert(*samples);
            }
        }
        self.run.scenarios.insert(id.to_owned(), experiment);
        Ok(())
    }

    /// Enters a system under test.
    ///
    /// # Errors
    /// It exists with another version.
    pub(crate) fn enter_system(&mut self, name: &str, description: &str) -> Result<()> {
        if let Some(old) = self.run.systems.get(name) {
            ensure!(
                old == description || !self.has_samples_of(name),
                "{}: has samples of '{name}' as {old}; now it is {description}: name another directory with --out",
                self.dir.display()
            );
        }
        self.run.systems.insert(name.to_owned(), description.to_owned());
        Ok(())
    }

    fn has_samples_of(&self, system: &str) -> bool {
        self.records
            .iter()
            .any(|record| matches!(record, Record::Sample(sample) if sample.system == system))
    }

    /// Changes `run.json`.
    ///
    /// # Errors
    /// It cannot be written, as on a full disk: the old one stays.
    pub fn change(&mut self, change: impl FnOnce(&mut Run)) -> Result<()> {
        change(&mut self.run);
        self.write_run()
    }

    fn write_run(&self) -> Result<()> {
        let path = self.dir.join(RUN);
        let new = self.dir.join(NEW);
        let text = serde_json::to_string_pretty(&self.run)? + "\n";
        let mut options = OpenOptions::new();
        let written = open(&new, options.create(true).truncate(true).write(true))
            .and_then(|mut file| {
                file.write_all(text.as_bytes())
                    .and_then(|()| file.sync_data())
                    .map_err(Into::into)
            })
            .and_then(|()| fs::rename(&new, &path).map_err(Into::into));
        written.map_err(|error| {
            fs::remove_file(&new).ok();
            explain(error, &path)
        })
    }

    /// Appends a record unless it is already present, as for a part that is still missing.
    ///
    /// # Errors
    /// It cannot be written, as on a full disk. Earlier records stay.
    pub fn append(&mut self, mut record: Record) -> Result<()> {
        if let Record::Sample(sample) = &mut record {
            sample.drop_unwritable();
        } else if self.records.contains(&record) {
            return Ok(());
        }
        let line = serde_json::to_string(&record)? + "\n";
        if let Err(error) = self.samples.write_all(line.as_bytes()) {
            // Half a line would be overwritten anyway; a reader of the file need not see it.
            self.samples
                .set_len(self.length)
                .and_then(|()| self.samples.seek(SeekFrom::End(0)))
                .ok();
            return Err(explain(error.into(), &self.dir.join(SAMPLES)));
        }
        self.length += line.len() as u64;
        self.records.push(record);
        Ok(())
    }

    /// Keeps how a system was set up; once for each heading, which says for which cells.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn configuration(&self, scenario: &str, system: &str, heading: &str, commands: &[String]) -> Result<()> {
        let path = configuration_path(&self.dir, scenario, system)?;
        let heading = format!("# {heading}\n");
        let old = match read_text(&path) {
            Ok(text) if text.contains(&heading) => return Ok(()),
            Ok(text) => text + "\n",
            Err(error) if is_missing(&error) => String::new(),
            Err(error) => return Err(error),
        };
        let text = commands
            .iter()
            .fold(old + &heading, |text, command| text + command.trim_end() + "\n");
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).map_err(Into::into);
        made.and_then(|()| open(&path, OpenOptions::new().create(true).truncate(true).write(true)))
            .and_then(|mut file| file.write_all(text.as_bytes()).map_err(Into::into))
            .map_err(|error| explain(error, &path))
    }
}

impl Sample {
    /// JSON has no infinities: drops values that are not finite, with a remark.
    fn drop_unwritable(&mut self) {
        let bad: Vec<String> = self
            .metrics
            .iter()
            .filter(|(_, value)| !value.is_finite())
            .map(|(name, _)| name.clone())
            .collect();
        for name in bad {
            self.metrics.remove(&name);
            self.remarks.push(format!("{name} is no number here"));
        }
        for distribution in self.distributions.values_mut() {
            distribution
                .quantiles
                .retain(|(share, value)| share.is_finite() && value.is_finite());
        }
        self.cpu.retain(|_, seconds| seconds.is_finite());
        for number in [&mut self.load, &mut self.started, &mut self.seconds] {
            *number = if number.is_finite() { *number } else { 0.0 };
        }
    }
}

/// Whether a run in the directory can be continued as the requested one.
fn same(old: Run, fresh: &Run) -> Result<Run> {
    let name = |profile| match profile {
        Profile::Quick => "--quick",
        Profile::Full => "--full",
    };
    ensure!(
        old.profile == fresh.profile,
        "it was begun with {}, not {}",
        name(old.profile),
        name(fresh.profile)
    );
    let place = |guest| {
        if guest {
            "in a virtual machine"
        } else {
            "on the machine itself"
        }
    };
    ensure!(
        old.in_guest == fresh.in_guest,
        "it was begun {}, not {}",
        place(old.in_guest),
        place(fresh.in_guest)
    );
    if let Some(difference) = old.machine.differs(&fresh.machine) {
        bail!("it was made on another machine: {difference}");
    }
    if let Some(difference) = Remote::differ(old.remote.as_ref(), fresh.remote.as_ref()) {
        bail!("it was made with another machine for the switch: {difference}");
    }
    Ok(old)
}

fn read_run(dir: &Path) -> Result<Option<Run>> {
    let path = dir.join(RUN);
    let text = match read_text(&path) {
        Ok(text) => text,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{}: is damaged", path.display()))?;
    let format = value["format"]
        .as_u64()
        .with_context(|| format!("{}: is not of a run", path.display()))?;
    ensure!(
        format == u64::from(FORMAT),
        "{}: has format {format}; this oxvs reads {FORMAT}",
        path.display()
    );
    let run: Run = serde_json::from_value(value).with_context(|| format!("{}: is damaged", path.display()))?;
    Ok(Some(run))
}

/// The complete lines, and their length together.
fn read_records(file: &File, path: &Path) -> Result<(Vec<Record>, u64)> {
    let mut reader = BufReader::new(file);
    let (mut records, mut length, mut line) = (Vec::new(), 0, Vec::new());
    for number in 1.. {
        line.clear();
        let read = reader
            .by_ref()
            .take(LARGEST)
            .read_until(b'\n', &mut line)
            .with_context(|| path.display().to_string())?;
        if line.last() != Some(&b'\n') {
            ensure!((read as u64) < LARGEST, "{}: line {number} is too long", path.display());
            break;
        }
        length += read as u64;
        let record =
            serde_json::from_slice(&line).with_context(|| format!("{}: line {number} is damaged", path.display()))?;
        records.push(record);
    }
    Ok((records, length))
}

/// A foreign file in a directory without a run. Files of a run that could not start, as on a full
/// disk, do not count.
fn foreign_file(dir: &Path) -> Result<Option<String>> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = name == LOCK || name == NEW || name == SAMPLES && entry.metadata()?.len() == 0;
        if !ours {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn configuration_path(dir: &Path, scenario: &str, system: &str) -> Result<PathBuf> {
    for name in [scenario, system] {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        ensure!(
            !name.is_empty() && !name.starts_with('.') && name.chars().all(legal),
            "'{name}' cannot be the name of a file"
        );
    }
    Ok(dir.join(CONFIGURATION).join(scenario).join(format!("{system}.txt")))
}

/// Opens a plain file: no link to one elsewhere, and nothing that would make us wait.
fn open(path: &Path, options: &OpenOptions) -> Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = options.clone().custom_flags(flags as i32).open(path);
    let file = file.with_context(|| format!("{}: cannot be opened", path.display()))?;
    ensure!(file.metadata()?.is_file(), "{}: is not a file", path.display());
    Ok(file)
}

fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let mut file = open(path, OpenOptions::new().read(true))?.take(LARGEST + 1);
    file.read_to_string(&mut text)
        .with_context(|| format!("{}: cannot be read", path.display()))?;
    ensure!(text.len() as u64 <= LARGEST, "{}: is too large", path.display());
    Ok(text)
}

fn is_missing(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

fn explain(error: anyhow::Error, path: &Path) -> anyhow::Error {
    let full = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
    let what = if full {
        "the disk is full; what was recorded before is kept"
    } else {
        "cannot be written"
    };
    error.context(format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests;
