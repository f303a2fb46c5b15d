//! Label mappings: what they stand for, and what is wrong with them.

use super::*;

const SECTIONS: &str = "\
cloudConfigurations:
  a: {name: A, credentialsId: api}
  b: {name: B, credentialsId: api}
agentConfigurations:
  linux: {cloudIds: [b, a], templateVmId: 9000, credentialsId: ssh}
  big: {cloudIds: [a], templateVmId: 9001, credentialsId: ssh}
";

// Invariant: a mapping names templates by their keys, on all their clouds, in the order written.

#[test]
fn a_bare_name_stands_for_the_template_on_each_of_its_clouds_in_order() {
    let scene = Scene::new();
    let checked = scene.good(&format!(
        "{SECTIONS}labelMappings:\n  builds: {{labels: 'x  docker', priority: 7, \
         templates: [big, linux]}}\n  other: {{labels: y, templates: [a/linux]}}\n{}",
        CREDENTIALS
    ));
    let shown = checked.herd.mappings.iter().map(|mapping| {
        let ids: Vec<String> = mapping.templates.iter().map(ToString::to_string).collect();
        format!("{:?} {} {}", mapping.labels, mapping.priority, ids.join(" "))
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [r#"{"docker", "x"} 7 a/big b/linux a/linux"#, r#"{"y"} 0 a/linux"#]
    );
}

// Invariant: impossible values are faults with their place and a help.

#[test]
fn what_is_wrong_with_mappings_is_shown() {
    let scene = Scene::new();
    let error = scene.faults(&format!(
        "{SECTIONS}labelMappings:
  nothing: {{}}
  blank: {{labels: '', templates: []}}
  names: {{labels: x, templates: [linx, b/big, linux, a/linux], priority: -1}}
  words: {{label: x}}
{}",
        CREDENTIALS
    ));
    insta::assert_snapshot!(error);
}
