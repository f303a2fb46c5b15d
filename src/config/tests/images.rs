//! Images: the values of variables, from the first that gives one.

use std::collections::BTreeMap;

use drover_model::image::Recipe;
use drover_model::spec::StepWork;

use super::*;

// Invariant: a caller's value wins over the environment, that over the file, that over the recipe.

#[test]
fn values_of_variables_come_from_the_first_that_gives_one() {
    let scene = Scene::with(&[("DROVER_VAR_b", "env"), ("DROVER_VAR_c", "env")]);
    scene.put("debian.vars", 0o644, "# of the team\na = file\nb=file\nc=file\n\n");
    let lines = "variables: {a: own, b: own, c: own, d: own}\nvariablesFile: debian.vars\n\
                 netplan: false\ncommands: ['${a} ${b} ${c} ${d} ${e}']\n";
    let checked = scene.good(&with("image", lines));
    let image = &checked.herd.images[&TemplateId::new(CloudId::new("c"), "i")];
    let given = BTreeMap::from([("c".to_owned(), "flag".to_owned())]);
    let recipe = Recipe::new(image, &given).unwrap();
    let work = &recipe.spec.machine.steps[0].work;
    assert_eq!(*work, StepWork::Run("file env flag own ${e}".into()));
}
