// Transit's adapter for OMP (@oh-my-pi/pi-coding-agent, 18.2 or newer): an extension.
export default function transit() {}
