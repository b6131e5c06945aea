//! `--config-file`: a file that says which remotes and databases the server has, and
//! `ovsdb-server/reload`, which reads it again.
//!
//! The server parses the whole file and looks for the databases before it changes anything.
//! Databases and remotes that stay as they are keep their clients.

mod file;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use mgmt::{os_text, paths};

use crate::server::Inner;
use file::{Config, MAX_BYTES};
pub(crate) use file::{Model, Source};

/// The configuration file and the databases that it made the server serve.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    served: Vec<Served>,
}

/// A database that the file names.
struct Served {
    /// The member of `databases`.
    key: String,
    /// The database's name.
    name: String,
    model: Model,
}

/// Reads the text of a configuration file as `--config-file` does, without acting on it. Returns
/// the number of its remotes and of its databases.
///
/// # Errors
/// The place in the file and the rule that it breaks.
pub fn check_config(text: &[u8]) -> Result<(usize, usize), String> {
    let config = Config::parse(text)?;
    Ok((config.remotes.len(), config.databases.len()))
}

impl ConfigFile {
    pub(crate) fn new(path: PathBuf) -> ConfigFile {
        let served = Vec::new();
        ConfigFile { path, served }
    }
}

impl Inner {
    /// Refuses commands that change what the configuration file says.
    pub(crate) fn refuse_beside_config_file(&self) -> Result<(), String> {
        match &*self.config_file.borrow() {
            Some(file) => Err(format!(
                "Update the {} and use ovsdb-server/reload instead",
                file.path.display()
            )),
            None => Ok(()),
        }
    }

    /// `ovsdb-server/reload`.
    pub(crate) fn reload(self: &Rc<Self>) -> Result<(), String> {
        let path = self.config_file.borrow().as_ref().map(|file| file.path.clone());
        let Some(path) = path else {
            return Err("Configuration file was not specified on command line".to_owned());
        };
        self.load_config_file(&path).inspect_err(|why| {
            tracing::warn!(target: "ovsdb_server", "failed to load configuration from {}: {}", path.display(), why.trim_end());
        })
    }

    /// Reads the configuration file and makes the server as it says.
    ///
    /// # Errors
    /// The file is wrong: nothing has changed. Or a database cannot be opened or a remote has no
    /// column: all others are in force.
    pub(crate) fn load_config_file(self: &Rc<Self>, path: &Path) -> Result<(), String> {
        tracing::info!(target: "ovsdb_server", "loading configuration from '{}'", path.display());
        let config = read(path).map_err(|why| format!("{}: {why}", path.display()))?;
        let before = self
            .config_file
            .borrow_mut()
            .as_mut()
            .map(|file| std::mem::take(&mut file.served));
        let (mut served, mut wanted) = (Vec::new(), config.databases);
        for entry in before.unwrap_or_default() {
            match wanted.get(&entry.key) {
                Some(model) if self.update(&entry, model) => {
                    let model = model.clone();
                    wanted.remove(&entry.key);
                    served.push(Served { model, ..entry });
                }
                _ => drop(self.remove_database(&entry.name)),
            }
        }
        let mut failures = Vec::new();
        for (key, model) in wanted {
            match self.serve(&key, &model) {
                Ok(name) => served.push(Served { key, name, model }),
                Err(why) => failures.push(format!("{}: databases: {key}: {why}", path.display())),
            }
        }
        if let Some(file) = &mut *self.config_file.borrow_mut() {
            file.served = served;
        }
        if let Err(why) = self.set_remotes(config.remotes) {
            failures.push(format!("{}: remotes: {why}", path.display()));
        }
        match failures.is_empty() {
            true => Ok(()),
            false => Err(failures.join("\n")),
        }
    }

    /// Serves a database that is served already in another way. Returns false if it has to be
    /// closed for that.
    fn update(self: &Rc<Self>, entry: &Served, model: &Model) -> bool {
        if entry.model == *model {
            return true;
        }
        if matches!(entry.model, Model::Relay(_)) || matches!(model, Model::Relay(_)) {
            return false;
        }
        self.set_model(&entry.name, model);
        true
    }

    /// Begins to serve a database. Returns its name.
    fn serve(self: &Rc<Self>, key: &str, model: &Model) -> Result<String, String> {
        if let Model::Relay(source) = model {
            let relay = format!("{key}:{}", source.remote);
            let added = self.add_relay(&relay, source.options.clone());
            return added.map_err(|error| error.to_string());
        }
        let file = database_file(key);
        if !self.has_started() {
            crate::store::wait_for_lock(&file);
        }
        let name = self.add_database(&file, None).map_err(|error| error.to_string())?;
        self.set_model(&name, model);
        Ok(name)
    }
}

/// Reads and checks the whole file.
fn read(path: &Path) -> Result<Config, String> {
    let failed = |error| os_text(&error);
    // Reading a FIFO or a device may never end.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes"));
    }
    let config = Config::parse(&text)?;
    for (key, model) in &config.databases {
        if matches!(model, Model::Relay(_)) {
            continue;
        }
        let found = fs::metadata(database_file(key));
        found.map_err(|error| format!("databases: {key}: {}", os_text(&error)))?;
    }
    Ok(config)
}

/// The file of a database. Names are relative to the directory of databases, not to the one that
/// the daemon began in: a reload finds the same files.
fn database_file(key: &str) -> PathBuf {
    paths::dbdir().join(key)
}
