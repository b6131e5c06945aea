mod frames;
mod hostile;
mod lab;
mod leaving;
mod networks;
