mod frames;
mod hostile;
mod lab;
mod networks;
