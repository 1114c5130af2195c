//! A backing device whose cold parts are at real stores: directories, a Redis server, an S3 server.

mod device;
mod faults;
mod servers;
