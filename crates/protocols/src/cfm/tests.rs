mod frames;
mod lab;
mod points;
