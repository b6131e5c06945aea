//! The modules of the crate import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{read_dir, read_to_string};
use std::path::Path;

/// Imports of each module from the others, outside its tests.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let within = path.strip_prefix(&src).unwrap().to_string_lossy().replace(".rs", "");
            if path.is_dir() {
                folders.push(path);
            } else if within != "lib" && !within.ends_with("/tests") && !within.contains("/tests/") {
                let module = within.split('/').next().unwrap().to_owned();
                let text = read_to_string(&path).unwrap();
                let product = text.split("#[cfg(test)]\nmod").next().unwrap();
                let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
                let names = lines.flat_map(|line| line.split("crate::").skip(1)).map(|rest| {
                    let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
                    rest[..end.unwrap_or(rest.len())].to_owned()
                });
                imports.entry(module).or_default().extend(names);
            }
        }
    }
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (module, imported) in &mut imports {
        imported.retain(|name| name != module && modules.contains(name));
    }
    imports
}

#[test]
fn modules_form_no_circle() {
    let mut imports = imports();
    assert!(imports["pipeline"].contains("megaflow"), "{imports:?}");
    // Removes modules whose imports are removed already: circles stay.
    while let Some(module) = imports
        .iter()
        .find(|(_, left)| left.is_empty())
        .map(|(name, _)| name.clone())
    {
        imports.remove(&module);
        for left in imports.values_mut() {
            left.remove(&module);
        }
    }
    assert!(imports.is_empty(), "a circle: {imports:#?}");
}
