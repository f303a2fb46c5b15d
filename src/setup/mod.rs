//! `drover setup`: what an administrator's rights make once, so that drover needs none of them.
