//! One panel to a file. Each draws a snapshot into the area it is given,
//! whatever its size, and keeps nothing.

pub mod conservation;
pub mod drops;
pub mod heat;
pub mod models;
pub mod parts;
pub mod quantiles;
pub mod sockets;
pub mod split;
pub mod strips;
pub mod trust;
pub mod verdict;
